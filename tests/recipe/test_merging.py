"""Later layers win, and what they take the place of goes."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.merging import Layer, Setting, layer_of, mean_the_same, merge_layers


def _layer(origin: str = "x.yaml:1", **values: Any) -> Layer:
    return layer_of([Setting(key, value, origin) for key, value in values.items()])


def _merged(*layers: Layer) -> dict[str, Any]:
    return dict(merge_layers(layers).values)


def test_later_wins_and_is_the_origin() -> None:
    merged = merge_layers([_layer("a:1", seed=1, num_epochs=2), _layer("b:1", seed=3)])
    assert (merged.values["seed"], merged.origins["seed"]) == (3, "b:1")
    assert (merged.values["num_epochs"], merged.origins["num_epochs"]) == (2, "a:1")
    assert (merged.values["micro_batch_size"], merged.origins["micro_batch_size"]) == (32, "default")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"global_batch_size": 64}, {"gradient_accumulation_count": 2}),
        ({"gradient_accumulation_count": 2}, {"global_batch_size": 64}),
        ({"log_every": 5}, {"steps_per_execution": 4}),
        ({"steps_per_execution": 4}, {"log_every": 5}),
        ({"log_every": 5}, {"logs_per_epoch": 2}),
        ({"log_every": 5}, {"logs_per_epoch": "1"}),
    ],
)
def test_alternatives_replace_each_other(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    merged = merge_layers([_layer("a:1", **earlier), _layer("b:1", **later)])
    (gone,) = earlier
    ((kept, value),) = later.items()
    assert (merged.values[gone], merged.origins[gone]) == (None, "default")
    assert (merged.values[kept], merged.origins[kept]) == (value, "b:1")


def test_log_every_brings_back_the_default_frequency() -> None:
    assert _merged(_layer(logs_per_epoch=3), _layer(log_every=5))["logs_per_epoch"] == "1"


def test_none_replaces_nothing_else() -> None:
    merged = _merged(_layer(global_batch_size=64), _layer(gradient_accumulation_count="none"))
    assert (merged["global_batch_size"], merged["gradient_accumulation_count"]) == (64, None)


def test_a_recipe_written_in_full_still_replaces() -> None:
    full = _layer(log_every=5, logs_per_epoch="1", steps_per_execution=None)
    merged = _merged(_layer(steps_per_execution=8), full)
    assert (merged["log_every"], merged["steps_per_execution"]) == (5, None)


def test_peak_rate_and_rate_per_sample_replace_each_other() -> None:
    per_sample = _layer(lr_schedule_params={"initial_learning_rate": 0.001, "epochs_to_total_decay": 3})
    peak = _layer(learning_rate=0.5)
    assert _merged(per_sample, peak)["lr_schedule_params"] == {"epochs_to_total_decay": 3}
    merged = _merged(peak, per_sample)
    assert merged["learning_rate"] is None
    assert merged["lr_schedule_params"]["initial_learning_rate"] == 0.001


def test_a_rate_scales_earlier_steps_and_later_steps_replace_it() -> None:
    steps = _layer(lr_schedule="stepped", lr_schedule_params={"boundaries": [1], "values": [1, 0.1]})
    scaled = _merged(steps, _layer(learning_rate=0.5))
    assert (scaled["learning_rate"], scaled["lr_schedule_params"]["values"]) == (0.5, [1, 0.1])
    assert _merged(_layer(learning_rate=0.5), steps)["learning_rate"] is None


def test_another_optimiser_leaves_foreign_keys_behind() -> None:
    assert _merged(_layer(optimizer="adam"))["optimizer_params"] == {}
    assert _merged(_layer(optimizer="SGD"))["optimizer_params"] == {"momentum": 0.9}
    adam = _layer(optimizer="adam", optimizer_params={"beta1": 0.8, "epsilon": 1e-7})
    assert _merged(adam, _layer(optimizer="adamw"))["optimizer_params"] == {"beta1": 0.8, "epsilon": 1e-7}
    assert _merged(adam, _layer(optimizer="sgd"))["optimizer_params"] == {}


def test_another_schedule_leaves_foreign_keys_behind() -> None:
    cosine = _layer(
        lr_schedule="polynomial",
        lr_schedule_params={"initial_learning_rate": 0.1, "epochs_to_total_decay": 3, "power": 2},
    )
    assert _merged(cosine, _layer(lr_schedule="cosine"))["lr_schedule_params"] == {
        "initial_learning_rate": 0.1,
        "epochs_to_total_decay": 3,
    }
    assert _merged(cosine, _layer(lr_schedule="stepped"))["lr_schedule_params"] == {}


def test_mappings_replace_the_whole_mapping() -> None:
    first = _layer(model_params={"a": 1, "b": 2})
    assert _merged(first, _layer(model_params={"b": 3}))["model_params"] == {"b": 3}


def test_mappings_are_written_as_yaml_with_dashes_or_underscores() -> None:
    layer = _layer(lr_schedule_params="{initial-learning-rate: 1e-3, power: null}")
    assert layer.values["lr_schedule_params"] == {"initial_learning_rate": 0.001}
    assert _layer(lr_warmup_params="none").values["lr_warmup_params"] is None


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"optimizer_params": "{momentum: [}"}, "--optimizer-params: this is not valid YAML"),
        ({"optimizer_params": "0.9"}, "--optimizer-params is 0.9, it must be a mapping"),
        ({"optimizer_params": None}, "--optimizer-params is none, it must be a mapping"),
        ({"micro_batch_size": True}, "--micro-batch-size is True, it must be a whole number"),
        ({"learning_rate": False}, "--learning-rate is False, it must be a number"),
        ({"disable_ckpt_saving": "maybe"}, "--disable-ckpt-saving: maybe is not a valid boolean value"),
    ],
)
def test_wrong_kinds(values: dict[str, Any], part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        _layer(**values)
    assert part in str(caught.value)


@pytest.mark.parametrize(("word", "checkpoints"), [("True", False), ("no", True), (True, False), ("0", True)])
def test_disabling_checkpoints(word: Any, checkpoints: bool) -> None:
    assert _layer(disable_ckpt_saving=word).values == {"checkpoints": checkpoints}


def test_two_names_of_one_field_in_one_place() -> None:
    settings = [Setting("batch-size", 8, "x.yaml:1"), Setting("micro_batch_size", 16, "x.yaml:2")]
    with pytest.raises(
        BadInputError, match=r"^x\.yaml:2: micro_batch_size sets --micro-batch-size a second time"
    ):
        layer_of(settings)
    with pytest.raises(BadInputError, match="--batch-size 8 and --micro-batch-size 16 both set"):
        layer_of(settings, may_repeat=True)
    same = [Setting("batch-size", "16", "command line"), settings[1]]
    assert layer_of(same, may_repeat=True).values == {"micro_batch_size": 16}
    with pytest.raises(BadInputError, match="a second time"):
        layer_of(same)


def test_one_name_twice_where_it_may_be_repeated() -> None:
    settings = [Setting("batch-size", 8, "command line"), Setting("batch_size", 16, "command line")]
    assert layer_of(settings, may_repeat=True).values == {"micro_batch_size": 16}


def test_one_key_in_two_spellings_is_refused_where_they_differ() -> None:
    spelt = "{warmup-epochs: 1, warmup_epochs: 2}"
    sentence = (
        "--lr-warmup-params has warmup-epochs and warmup_epochs, two spellings of one key, "
        "with different values"
    )
    with pytest.raises(BadInputError, match=sentence):
        layer_of([Setting("lr_warmup_params", spelt, "command line")])
    same = layer_of([Setting("lr_warmup_params", "{warmup-epochs: 1, warmup_epochs: 1}", "command line")])
    assert same.values == {"lr_warmup_params": {"warmup_epochs": 1}}


@pytest.mark.parametrize(
    ("field", "value", "other", "same"),
    [
        ("learning_rate", "0.1", "1e-1", True),
        ("learning_rate", "0.1", "0.2", False),
        ("checkpoints", "no", False, True),
        ("checkpoints", "no", True, False),
        ("loss_scaling", "0", 0.0, True),
        ("loss_scaling", "128", "dynamic", False),
        ("model", "lenet", "lenet", True),
        ("learning_rate", "x", "x", True),
        ("learning_rate", "x", "0.1", False),
    ],
)
def test_values_are_compared_as_the_field_takes_them(field: str, value: Any, other: Any, same: bool) -> None:
    assert mean_the_same(field, value, other) is same
