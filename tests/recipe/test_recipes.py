"""The packaged recipes: each is planned, and holds the numbers it is known by."""

from functools import cache
from typing import Any

import pytest

from drivetrain import make_plan
from drivetrain.recipe.layout import stage_count
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.named import packaged_description, packaged_names
from drivetrain.recipe.schema import OptimizerParams

# (micro-batch, accumulation, replicas), epochs, peak rate
NUMBERS: dict[str, tuple[tuple[int, int, int], int, float]] = {
    "resnet8_test": ((8, 1, 1), 1, 0.0008),
    "resnet8_test_lars": ((8, 1, 1), 50, 0.001),
    "cifar_resnet8_70ep": ((25, 80, 1), 70, 0.244140625),
    "cifar_resnet8_70ep_dbn": ((25, 5, 16), 70, 0.244140625),
    "cifar_resnet8_fast": ((125, 1, 1), 12, 0.25),
    "cifar_resnet20_paper": ((128, 1, 1), 168, 0.1),
    "imagenet_resnet50": ((16, 16, 1), 90, 0.1),
    "resnet50_16k": ((16, 256, 4), 100, 2.0),
    "resnet50_8k": ((16, 128, 4), 100, 1.0),
    "resnet50_1536": ((12, 8, 16), 1, 0.1536),
    "resnet56_8k": ((16, 128, 4), 100, 1.0),
    "resnet50_mlperf": ((16, 9, 16), 44, 4.588),
    "resnet50_mlperf_bs20": ((20, 6, 16), 40, 3.82333333),
    "resnet50_mlperf_bs20_4_replicas": ((20, 6, 4), 40, 0.955833333),
    "resnet50_mlperf_lars": ((18, 12, 16), 38, 10.52509248),
    "isbi_unet": ((8, 3, 1), 2100, 0.0024),
    "isbi_unet_medical": ((8, 1, 1), 2134, 0.0001),
    "isbi_unet_best": ((8, 1, 1), 300, 0.0004),
    "isbi_unet_fast": ((8, 1, 1), 200, 0.0004),
    "isbi_unet_pipelined": ((1, 24, 1), 2100, 0.0024),
    "cifar_resnet8_pipelined": ((1, 8, 1), 1, 0.0008),
    "mnist_pipelined": ((64, 8, 1), 3, 0.01),
    "resnet50_8k_pipelined": ((16, 128, 4), 100, 1.0),
}
PARAMETERS = {
    "cifar_resnet8": 75290,
    "cifar_resnet20": 269722,
    "resnet50": 25557032,
    "unet": 31030658,
    "unet_medical": 34512258,
}


def test_the_medical_unet_measures_averaged_weights_unless_told_not_to() -> None:
    assert resolve_recipe(config="isbi_unet_medical").recipe.ema == 0.999
    assert resolve_recipe(config="isbi_unet_medical", overrides={"ema": None}).recipe.ema is None


def test_fine_tuning_moves_the_backbone_slowly() -> None:
    plan = make_plan("fine_tune")
    assert plan["learning_rate_peak"] == 0.001
    assert plan["learning_rate_factors"] == pytest.approx(
        {**dict.fromkeys(("conv1_conv", "conv2_block1", "conv3_block1", "conv4_block1"), 0.1), "fc_layer": 1}
    )


def test_every_recipe_has_its_numbers_here() -> None:
    assert set(packaged_names()) - set(NUMBERS) == {
        "digits",
        "fine_tune",
        "mnist_tutorial",
        "synthetic_em",
        "synthetic_smoke",
    }


@cache
def _plan(name: str) -> dict[str, Any]:
    return make_plan(name)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_recipe_can_be_planned(name: str) -> None:
    plan = _plan(name)
    (micro, accumulation, replicas), num_epochs, peak = NUMBERS[name]
    assert plan["batch"] == {
        "micro": micro,
        "accumulation": accumulation,
        "replicas": replicas,
        "global": micro * accumulation * replicas,
    }
    assert resolve_recipe(config=name).recipe.num_epochs == num_epochs
    assert plan["learning_rate_peak"] == pytest.approx(peak, rel=1e-8)
    assert plan["model"]["parameters"] == PARAMETERS.get(plan["model"]["name"], plan["model"]["parameters"])


@pytest.mark.parametrize("name", NUMBERS)
def test_what_belongs_to_many_devices_is_said(name: str) -> None:
    recipe = resolve_recipe(config=name).recipe
    is_cut = stage_count(recipe) > 1
    description = packaged_description(name)
    assert ("one device per replica" in description) == (recipe.replicas > 1 and not is_cut)
    assert ("one device per stage" in description or "16 devices" in description) == is_cut


def test_the_schedule_of_the_paper() -> None:
    plan = make_plan("cifar_resnet20_paper", lr_at=[0, 31999, 32000, 47999, 48000, 63999])
    assert list(plan["learning_rate"].values()) == [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    assert plan["total_updates"] == 64000
    assert plan["warnings"] == []


def test_the_fast_recipe_uses_every_image() -> None:
    plan = make_plan("cifar_resnet8_fast", lr_at=[400, 4799])
    assert plan["total_updates"] == 4800
    assert plan["epoch"]["samples_unused"] == 0
    assert plan["warnings"] == []
    assert plan["learning_rate"]["400"] == pytest.approx(0.25)
    assert plan["learning_rate"]["4799"] < 1e-5


def test_recipes_hold_their_optimisers() -> None:
    def given(name: str) -> tuple[str, OptimizerParams, float]:
        recipe = resolve_recipe(config=name).recipe
        return recipe.optimizer, recipe.optimizer_params, recipe.l2_regularization

    lars: dict[str, Any] = {"momentum": 0.9, "eeta": 0.001, "epsilon": 0}
    assert given("resnet8_test_lars") == ("lars", OptimizerParams(**lars, weight_decay=2.5e-6), 1e-5)
    assert given("resnet50_mlperf_lars") == ("lars", OptimizerParams(**lars, weight_decay=5e-5), 0)
    assert given("resnet50_mlperf") == ("sgd", OptimizerParams(momentum=0.9), 2.5e-5)
    assert given("resnet8_test") == ("sgd", OptimizerParams(momentum=0), 0)


def test_heirs_replace_the_schedule_of_the_base() -> None:
    recipe = resolve_recipe(config="resnet50_mlperf_lars").recipe
    assert recipe.lr_schedule == "polynomial"
    assert recipe.learning_rate is None
    assert recipe.lr_schedule_params.epochs_to_total_decay == 36
    assert recipe.lr_warmup_params is not None
    assert recipe.lr_warmup_params.warmup_epochs == 2
    assert resolve_recipe(config="resnet50_1536").recipe.lr_warmup_params is None


def _stages(name: str, key: str) -> list[Any]:
    return [stage[key] for stage in _plan(name)["stages"]]


def test_the_stages_of_the_pipelined_unet() -> None:
    plan = _plan("isbi_unet_pipelined")
    assert _stages("isbi_unet_pipelined", "parameters") == [259008, 20680704, 9504640, 586306]
    assert _stages("isbi_unet_pipelined", "last") == [
        "encoder_block_1_maxpooling",
        "decoder_block_0_transpose",
        "decoder_block_2_transpose",
        "output_conv",
    ]
    assert sum(_stages("isbi_unet_pipelined", "flops")) == plan["model"]["flops"]
    assert plan["schedule"]["name"] == "grouped"
    assert plan["schedule"]["live"] == [7, 5, 3, 1]
    assert plan["learning_rate_peak"] == 0.0024
    assert plan["total_updates"] == 2100


def test_the_stages_of_the_pipelined_mnist_network() -> None:
    assert _stages("mnist_pipelined", "last") == ["conv2d_1", "dense"]
    assert _stages("mnist_pipelined", "parameters") == [320 + 18496, 16010]
    assert _plan("mnist_pipelined")["epoch"]["samples_unused"] == 60000 - 59904


def test_the_stages_of_the_pipelined_cifar_network() -> None:
    assert _stages("cifar_resnet8_pipelined", "first") == [
        "conv1_conv",
        "conv2_block1_post_addition_relu",
        "conv3_block1_post_addition_relu",
        "conv4_block1_post_addition_relu",
    ]
    assert _stages("cifar_resnet8_pipelined", "recomputation") == [True] * 4
    assert sum(_stages("cifar_resnet8_pipelined", "parameters")) == 75290


def test_sixteen_devices_for_resnet50() -> None:
    plan = _plan("resnet50_8k_pipelined")
    assert plan["layout"] == {"replicas": 4, "stages": 4, "devices": 4, "ranks": 16}
    assert _stages("resnet50_8k_pipelined", "first")[1:] == [
        "conv2_block2_out",
        "conv3_block1_out",
        "conv4_block2_out",
    ]
    assert sum(_stages("resnet50_8k_pipelined", "parameters")) == 25557032
    assert resolve_recipe(config="resnet50_8k_pipelined").recipe.stable_norm
