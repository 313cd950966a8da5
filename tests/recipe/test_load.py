"""Resolution: all layers, origins, names, and one sentence for every refused value."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import read_recipe_yaml, recipe_to_yaml, resolve_recipe
from drivetrain.recipe.named import packaged_names
from drivetrain.recipe.params import LrScheduleParams, LrWarmupParams, OptimizerParams
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.yaml_text import YamlDocument

RECIPES = [
    Recipe(),
    Recipe(optimizer="adam", weight_decay=0.0, learning_rate=1e-5),
    Recipe(optimizer="adamw", optimizer_params=OptimizerParams(beta1=0.1, epsilon=1e-12), seed=2**63 - 1),
    Recipe(
        lr_schedule="stepped",
        lr_schedule_params=LrScheduleParams(boundaries=(1.0, 2.5), values=(0.3, 0.1 + 0.2, 1e-300)),
        lr_warmup_params=LrWarmupParams(warmup_mode="mask", warmup_epochs=0.5),
    ),
    Recipe(
        model_params={"a": "1e-4", "b": [1, 2.0, None, True, "yes"], "c": {"d": "010", "<<": "x"}},
        output_dir="2024-01-02",
        data_dir=" a: 'b' \u00fc \u2028 # c",
        log_every=5,
        logs_per_epoch="1",
        checkpoints=False,
    ),
]


def test_a_classifiers_model_or_data_take_the_plain_defaults() -> None:
    for overrides in ({"model": "cifar_resnet8"}, {"dataset": "digits"}):
        resolved = resolve_recipe(overrides=overrides)
        assert resolved.recipe == Recipe()
        assert set(resolved.origins) == set(Recipe.model_fields)
        assert set(resolved.origins.values()) == {"default", "command line"}
        assert (resolved.name, resolved.warnings) == ("digits-cifar_resnet8", ())


def test_nothing_asked_is_the_embedded_recipe() -> None:
    resolved = resolve_recipe(overrides={"seed": 3})
    named = resolve_recipe(config="synthetic_em", overrides={"seed": 3})
    assert resolved.recipe == named.recipe
    assert resolved.origins["dataset"] == named.origins["dataset"]
    assert resolved.name == "synthetic-em-unet_same"


def test_a_segmentations_model_or_data_take_the_rest_from_the_embedded_recipe() -> None:
    embedded = resolve_recipe(config="synthetic_em").recipe
    by_model = resolve_recipe(overrides={"model": "unet"}).recipe
    assert by_model == embedded.model_copy(update={"model": "unet", "model_params": {}, "model_width": None})
    by_data = resolve_recipe(overrides={"dataset": "mask-folder"}).recipe
    assert by_data == embedded.model_copy(update={"dataset": "mask-folder"})


def test_a_run_that_continues_has_its_own_recipe_alone() -> None:
    assert resolve_recipe(base={"seed": 3}).recipe == Recipe(seed=3)


def test_all_layers_in_order() -> None:
    base = {"seed": 1, "num_epochs": 2, "micro_batch_size": 3, "clip_norm": 1.0}
    resolved = resolve_recipe(config="mnist_tutorial", overrides={"num-epochs": "9", "lr": "0.5"}, base=base)
    recipe, origins = resolved.recipe, resolved.origins
    assert (recipe.seed, recipe.num_epochs, recipe.micro_batch_size, recipe.clip_norm) == (1, 9, 64, 1.0)
    assert (origins["seed"], origins["num_epochs"]) == ("run directory", "command line")
    assert origins["micro_batch_size"] == "recipe mnist_tutorial (mnist_tutorial.yaml:4)"
    assert (recipe.learning_rate, origins["learning_rate"]) == (0.5, "command line")


def test_a_whole_recipe_as_base_gives_way() -> None:
    base = Recipe(global_batch_size=64, log_every=5, optimizer="sgd").model_dump()
    resolved = resolve_recipe(base=base, overrides={"gradient_accumulation_count": 3, "logs_per_epoch": 1})
    assert resolved.recipe.global_batch_size is None
    assert resolved.recipe.log_every is None
    adam = resolve_recipe(base=base, overrides={"optimizer": "adam"})
    assert adam.recipe.optimizer_params == OptimizerParams()


def test_what_was_meant_for_one_call_does_not_come_back() -> None:
    base = Recipe(overwrite=True, seed=3).model_dump()
    resolved = resolve_recipe(base=base)
    assert (resolved.recipe.overwrite, resolved.recipe.seed) == (False, 3)
    assert resolve_recipe(base=Recipe(training=False).model_dump()).recipe.training
    assert resolve_recipe(base=base, overrides={"overwrite": "True"}).recipe.overwrite


def test_typed_values_and_text_mean_the_same() -> None:
    typed = {
        "micro_batch_size": 8,
        "shuffle": False,
        "learning_rate": 0.25,
        "optimizer_params": OptimizerParams(momentum=0.5),
        "lr_schedule_params": LrScheduleParams(epochs_to_total_decay=3),
        "lr_warmup_params": LrWarmupParams(warmup_epochs=1),
        "model_params": {"a": [1, 2]},
        "logs_per_epoch": 0.5,
        "num_epochs": 4,
    }
    text = {
        "batch-size": "8",
        "shuffle": "no",
        "lr": "0.25",
        "optimizer-params": '{"momentum": 0.5}',
        "lr-schedule-params": "epochs-to-total-decay: 3",
        "lr-warmup-params": "{warmup_epochs: 1}",
        "model-params": "{a: [1, 2]}",
        "logs-per-epoch": "0.5",
        "epochs": "4",
    }
    assert resolve_recipe(overrides=typed).recipe == resolve_recipe(overrides=text).recipe


def test_a_resolved_recipe_can_be_passed_on() -> None:
    first = resolve_recipe(overrides={"log_every": 5, "checkpoints": False}).recipe
    asked = {field: getattr(first, field) for field in first.model_fields_set}
    assert resolve_recipe(overrides=asked).recipe == first


@pytest.mark.parametrize("text", ["true", "T", "1", "yes", "Y", "ON", "True"])
def test_words_for_true(text: str) -> None:
    assert resolve_recipe(overrides={"tensorboard": text}).recipe.tensorboard is True


@pytest.mark.parametrize("text", ["false", "F", "0", "no", "N", "OFF", "False"])
def test_words_for_false(text: str) -> None:
    assert resolve_recipe(overrides={"shuffle": text}).recipe.shuffle is False


@pytest.mark.parametrize(
    ("config", "path", "overrides", "name"),
    [
        ("digits", None, {}, "digits"),
        (None, "my recipe.v2.yaml", {}, "my-recipe-v2"),
        (None, "../.yaml", {}, "yaml"),
        (None, None, {"dataset": "my.data:make", "model": "a.b:net"}, "my-data-make-a-b-net"),
    ],
)
def test_names_are_safe_for_a_folder(
    tmp_path: Path, config: str | None, path: str | None, overrides: dict[str, Any], name: str
) -> None:
    file = None
    if path is not None:
        file = tmp_path / Path(path).name
        file.write_text("seed: 1\n")
    assert resolve_recipe(config=config, config_path=file, overrides=overrides).name == name


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        (
            "micro_batch_size",
            "0",
            "--micro-batch-size is 0, it must be at least 1; --micro-batch-size 32 works.",
        ),
        (
            "micro_batch_size",
            "x",
            "--micro-batch-size is x, it must be a whole number; --micro-batch-size 32 works.",
        ),
        (
            "micro_batch_size",
            1.5,
            "--micro-batch-size is 1.5, it must be a whole number; --micro-batch-size 32 works.",
        ),
        ("num_workers", "-1", "--num-workers is -1, it must be at least 0; --num-workers 2 works."),
        (
            "label-smoothing",
            "1",
            "--label-smoothing is 1, it must be at least 0 and less than 1; --label-smoothing 0.0 works.",
        ),
        ("clip_norm", "0", "--clip-norm is 0, it must be more than 0; --clip-norm 1.0 works."),
        (
            "learning_rate",
            "inf",
            "--learning-rate is inf, it must be a finite number; --learning-rate 0.1 works.",
        ),
        ("learning_rate", "fast", "--learning-rate is fast, it must be a number; --learning-rate 0.1 works."),
        (
            "optimizer",
            "adm",
            "--optimizer is adm, it must be one of sgd, adam, adamw, rmsprop, lars; --optimizer adam works.",
        ),
        ("shuffle", "maybe", "--shuffle: maybe is not a valid boolean value; --shuffle True works."),
        (
            "optimizer_params",
            "{momentun: 1}",
            "--optimizer-params has no key momentun. Did you mean momentum? "
            "Its keys are momentum, nesterov, beta1, beta2, epsilon, bare_epsilon, rho, centered, "
            "weight_decay, eeta.",
        ),
        (
            "optimizer_params",
            "{momentum:1}",
            "--optimizer-params has no key momentum:1. Did you mean momentum? "
            "Its keys are momentum, nesterov, beta1, beta2, epsilon, bare_epsilon, rho, centered, "
            "weight_decay, eeta.",
        ),
        (
            "optimizer_params",
            "{momentum: 1}",
            "momentum of --optimizer-params is 1, it must be at least 0 and less than 1; "
            "--optimizer-params '{\"momentum\": 0.9}' works.",
        ),
        (
            "lr_schedule_params",
            "{values: [a]}",
            "values of --lr-schedule-params is a, it must be a list of numbers; "
            '--lr-schedule-params \'{"boundaries": [2, 4], "values": [0.1, 0.01, 0.001]}\' works.',
        ),
        (
            "lr_warmup_params",
            "{warmup_mode: mask}",
            "--lr-warmup-params needs the key warmup_epochs; "
            "--lr-warmup-params '{\"warmup_epochs\": 1}' works.",
        ),
        (
            "lr_warmup_params",
            "{warmup_mode: x, warmup_epochs: 1}",
            "warmup_mode of --lr-warmup-params is x, it must be one of shift, mask; "
            '--lr-warmup-params \'{"warmup_mode": "shift", "warmup_epochs": 1}\' works.',
        ),
        (
            "weight_updates_per_epoch",
            "0",
            "--weight-updates-per-epoch is 0, it must be at least 1, or -1 to use the size of the data set; "
            "--weight-updates-per-epoch 100 works.",
        ),
        (
            "output_dir",
            "",
            "--output-dir is '', it must be text, at least one character; --output-dir runs/mine works.",
        ),
    ],
)
def test_one_sentence_for_a_refused_value(option: str, value: Any, sentence: str) -> None:
    with pytest.raises(BadInputError) as caught:
        resolve_recipe(overrides={option: value})
    assert str(caught.value) == sentence


def test_an_unknown_override() -> None:
    with pytest.raises(
        BadInputError, match=r"^micro_batch_sise is not an option\. Did you mean micro-batch-size\?$"
    ):
        resolve_recipe(overrides={"micro_batch_sise": 3})


def test_long_and_odd_values_stay_one_short_line() -> None:
    with pytest.raises(BadInputError) as caught:
        resolve_recipe(overrides={"micro_batch_size": "1\n2\x1b[31m" + "x" * 1000})
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.lists(st.text(), max_size=2)
)


KEYS = st.sampled_from(list(Recipe.model_fields)) | st.text(max_size=6)


@settings(max_examples=100, deadline=None)
@given(overrides=st.dictionaries(KEYS, VALUES, max_size=3))
def test_whatever_is_given_the_answer_is_one_line(overrides: dict[str, Any]) -> None:
    message = "none"
    try:
        resolve_recipe(overrides=overrides)
    except BadInputError as error:
        message = str(error)
    assert len(message.splitlines()) == 1


def test_line_breaks_in_what_was_typed_do_not_break_the_answer() -> None:
    with pytest.raises(BadInputError) as caught:
        resolve_recipe(overrides={"model": "a\rb\nc\x0bd"})
    assert len(str(caught.value).splitlines()) == 1


def test_a_bare_command_is_the_demonstration() -> None:
    bare, named = resolve_recipe(), resolve_recipe(config="synthetic_em")
    assert bare.recipe == named.recipe
    assert (bare.recipe.model, bare.recipe.dataset) == ("unet_same", "synthetic-em")
    assert resolve_recipe(overrides={"seed": 7}).recipe == named.recipe.model_copy(update={"seed": 7})


@pytest.mark.parametrize("asked", [{"dataset": "mask-folder"}, {"model": "unet_same"}])
def test_a_segmentations_part_alone_takes_the_rest_from_it(asked: dict[str, str]) -> None:
    recipe = resolve_recipe(overrides=asked).recipe
    named = resolve_recipe(config="synthetic_em").recipe
    assert recipe == named.model_copy(update=asked)


def test_another_model_does_not_take_over_its_parameters() -> None:
    recipe = resolve_recipe(overrides={"model": "unet", "dataset": "isbi2012"}).recipe
    assert (recipe.model_params, recipe.model_width) == ({}, None)
    assert recipe.learning_rate == resolve_recipe().recipe.learning_rate


@pytest.mark.parametrize(
    "asked", [{"dataset": "digits"}, {"model": "cifar_resnet8"}, {"dataset": "my.data:load"}]
)
def test_a_classifications_part_takes_the_plain_defaults(asked: dict[str, str]) -> None:
    assert resolve_recipe(overrides=asked).recipe == Recipe.model_validate(asked)


def test_a_named_recipe_and_a_file_stand_on_the_plain_defaults(tmp_path: Path) -> None:
    assert resolve_recipe(config="digits").recipe.micro_batch_size == Recipe().micro_batch_size
    (tmp_path / "mine.yaml").write_text("dataset: synthetic-em\nmodel: unet_same\n")
    recipe = resolve_recipe(config_path=tmp_path / "mine.yaml").recipe
    assert (recipe.micro_batch_size, recipe.model_width) == (Recipe().micro_batch_size, None)


def test_a_folder_of_data_needs_a_kind() -> None:
    """Else a person's images would lie there unused while generated ones are trained on."""
    with pytest.raises(
        BadInputError, match=r"^--data-dir mine .*--dataset mask-folder .*--dataset image-folder"
    ):
        resolve_recipe(overrides={"data_dir": "mine", "model_width": 8})
    assert resolve_recipe(config="digits", overrides={"data_dir": "mine"}).recipe.dataset == "digits"


@pytest.mark.parametrize("recipe", RECIPES)
def test_round_trip_is_exact(tmp_path: Path, recipe: Recipe) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_to_yaml(recipe), encoding="utf-8")
    values = read_recipe_yaml(path)
    assert list(values) == list(Recipe.model_fields)
    assert Recipe.model_validate(values) == recipe
    assert recipe_to_yaml(Recipe.model_validate(values)) == recipe_to_yaml(recipe)
    assert resolve_recipe(base=values).recipe == recipe
    assert resolve_recipe(config_path=path).recipe == recipe


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS


PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(folder=TEXTS, model_params=st.dictionaries(TEXTS, PLAIN, max_size=3), rate=st.floats(0, 1e300))
def test_any_text_and_number_survives(folder: str, model_params: dict[str, Any], rate: float) -> None:
    recipe = Recipe(output_dir=folder, model_params=model_params, learning_rate=rate)
    document = YamlDocument(recipe_to_yaml(recipe), source="recipe.yaml")
    assert document.root is not None
    assert Recipe.model_validate(document.value(document.root)) == recipe


@settings(max_examples=15, deadline=None)
@given(reason=st.text("ab: #'-{é\n\t", min_size=1, max_size=300), folder=TEXTS)
def test_reasons_are_comments_that_change_nothing(reason: str, folder: str) -> None:
    recipe = Recipe(
        data_dir=f"x{folder}",
        model_params={"seed": [1, {"model": "a: b"}], "text": "line\nseed: 5\n# end"},
        lr_warmup_params=LrWarmupParams(warmup_mode="mask", warmup_epochs=2),
        class_weights=("balanced",),
    )
    text = recipe_to_yaml(recipe, reasons=dict.fromkeys(Recipe.model_fields, reason))
    assert yaml.safe_load(text) == yaml.safe_load(recipe_to_yaml(recipe))


def test_a_reason_stands_above_its_field_in_short_lines(tmp_path: Path) -> None:
    recipe = Recipe(seed=3, num_epochs=7)
    reason = "because " * 30
    text = recipe_to_yaml(recipe, reasons={"num_epochs": reason, "seed": "it was drawn"})
    assert "\n# it was drawn\nseed: 3\n" in text
    lines = text.splitlines()
    place = lines.index("num_epochs: 7")
    above = lines[place - 3 : place]
    assert " ".join(line.removeprefix("# ") for line in above) == reason.strip()
    assert max(map(len, above)) <= 102
    written = tmp_path / "recipe.yaml"
    written.write_text(text)
    assert resolve_recipe(base=read_recipe_yaml(written)).recipe == recipe
    assert text.replace("# it was drawn\n", "") != text


def test_what_rules_decided_gives_way_to_what_was_typed() -> None:
    asked = {"dataset": "mask-folder", "data_dir": "cells", "global_batch_size": "48", "optimizer": "adam"}
    decided = {
        "model": "unet_same",
        "gradient_accumulation_count": 2,
        "optimizer": "sgd",
        "optimizer_params": {"momentum": 0.9},
        "learning_rate": 0.1,
    }
    resolved = resolve_recipe(overrides=asked, decided=decided)
    assert (resolved.recipe.global_batch_size, resolved.recipe.gradient_accumulation_count) == (48, None)
    assert (resolved.recipe.optimizer, resolved.recipe.optimizer_params) == ("adam", OptimizerParams())
    assert (resolved.recipe.learning_rate, resolved.origins["learning_rate"]) == (0.1, "rules")
    # The recipe for segmentation stands below no decision.
    assert resolved.recipe.loss == Recipe().loss
    assert resolved.recipe.num_epochs == Recipe().num_epochs


def test_a_changed_value_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_to_yaml(Recipe()).replace("seed: 0", "seed: 1"))
    assert Recipe.model_validate(read_recipe_yaml(path)) == Recipe(seed=1) != Recipe()


@pytest.mark.parametrize("name", packaged_names())
def test_other_yaml_readers_understand_it(name: str) -> None:
    recipe = resolve_recipe(config=name).recipe
    assert Recipe.model_validate(yaml.safe_load(recipe_to_yaml(recipe))) == recipe


def test_a_file_that_is_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("seed: 1\nfoo: 2\n")
    with pytest.raises(BadInputError, match=":2: foo is not an option"):
        read_recipe_yaml(path)
    path.write_text("[]")
    with pytest.raises(BadInputError, match="does not contain a recipe"):
        read_recipe_yaml(path)


def test_few_skipped_samples_are_only_left_without_a_warning_by_rules() -> None:
    plain = resolve_recipe(overrides={"dataset": "digits"})
    assert not plain.skips_by_rule
    reasons = {"augment": "there are few images"}
    assert replace(plain, reasons=reasons).skips_by_rule
    typed = resolve_recipe(overrides={"dataset": "digits", "remainder": "trim"})
    assert not replace(typed, reasons=reasons).skips_by_rule
