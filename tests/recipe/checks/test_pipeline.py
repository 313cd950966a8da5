"""Stages, splits, mapping and options of single stages must fit together."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe


def _recipe(config: str | None = None, **options: Any) -> Recipe:
    return resolve_recipe(config=config, overrides={"dataset": "digits", **options}).recipe


COMPILED_HALVES = (
    "--pipeline-schedule zero-bubble splits backward passes in two, which compiled stages cannot do; "
    "use --compile off, or --pipeline-schedule 1f1b."
)
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"stages": 4, "pipeline_splits": ["a"]},
        "--stages 4 does not fit --pipeline-splits a, which splits the model into 2 stages; "
        "leave --stages out.",
    ),
    (
        {"stages": 2, "device_mapping": [0, -1]},
        "--device-mapping 0 -1 has a device below 0; --device-mapping 0 1 works.",
    ),
    (
        {"stages": 4, "device_mapping": [0, 1]},
        "--device-mapping 0 1 names 2 devices for 4 stages; it must name one for each, such as "
        "--device-mapping 0 1 2 3.",
    ),
    (
        {"stages": 4, "device_mapping": [0, 2, 2, 0]},
        "--device-mapping 0 2 2 0 leaves device 1 without a stage; number the devices from 0 without "
        "gaps, such as --device-mapping 0 1 2 3.",
    ),
    (
        {"pipeline_schedule": "gpipe"},
        "--pipeline-schedule gpipe has no effect without pipeline stages; add --stages 2 or leave it out.",
    ),
    (
        {"split_by": "parameters"},
        "--split-by parameters has no effect without pipeline stages; add --stages 2 or leave it out.",
    ),
    (
        {"stages": 2, "split_by": "time", "deterministic": True},
        "--split-by time cuts the model by measured times, but --deterministic lets no measured time decide; "
        "--split-by cost works.",
    ),
    (
        {"device_mapping": [0]},
        "--device-mapping 0 has no effect without pipeline stages; add --stages 2 or leave it out.",
    ),
    (
        {"stages": 2, "stage_options": [{"stage": 2, "recomputation": True}]},
        "--stage-options names stage 2, but the stages are 0 to 1; --stages 3 would create it.",
    ),
    (
        {"stage_options": [{"stage": 0, "recomputation": True}]},
        "--stage-options needs more than one stage; add --stages 2, or use --recomputation, "
        "--precision, --compile and --optimizer-state-offloading.",
    ),
    (
        {"stages": 2, "device_mapping": [0, 0], "stage_options": [{"stage": 0, "offload": True}]},
        "--stage-options offloads one stage of a device and not the other, but they share one optimiser; "
        "give all stages of a device the same offload.",
    ),
    (
        {"stages": 2, "pipeline_schedule": "zero-bubble", "compile": "on"},
        COMPILED_HALVES,
    ),
    (
        {
            "stages": 2,
            "pipeline_schedule": "zero-bubble",
            "stage_options": [{"stage": 1, "compile": True}],
        },
        COMPILED_HALVES,
    ),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_every_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError) as caught:
        _recipe(**options)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "options",
    [
        {"stages": 2, "pipeline_splits": ["a"]},
        {"stages": 4, "device_mapping": [0, 1, 1, 0], "pipeline_schedule": "zero-bubble"},
        {"stages": 2, "device_mapping": [0, 0], "stage_options": [{"offload": True}, {"offload": True}]},
        {"stages": 2, "stage_options": [{"stage": 0, "offload": True}]},
        {"stages": 2, "pipeline_schedule": "1f1b", "compile": "on"},
        {"recomputation": True},
        {"optimizer_state_offloading": True},
    ],
)
def test_what_fits(options: dict[str, Any]) -> None:
    assert _recipe(**options).stages == options.get("stages")


def test_schedule_names_in_any_case() -> None:
    assert _recipe(stages=2, pipeline_schedule="GPipe").pipeline_schedule == "gpipe"
    assert _recipe(stages=2, pipeline_schedule="Zero-Bubble").pipeline_schedule == "zero-bubble"


def _memory(**options: Any) -> tuple[bool, bool]:
    recipe = _recipe(**options)
    return recipe.recomputation, recipe.optimizer_state_offloading


def test_what_a_run_is_optimised_for() -> None:
    assert _memory() == (False, False)
    assert _memory(optimise_for="speed") == (False, False)
    assert _memory(optimise_for="memory") == (True, True)
    assert _memory(optimise_for="balanced") == (True, False)
    # With stages, those that hold several micro-batches recompute; the plan knows which.
    assert _memory(optimise_for="balanced", stages=2) == (False, False)


def test_options_of_their_own_come_before_it() -> None:
    assert _memory(optimise_for="memory", recomputation=False) == (False, True)
    assert _memory(optimise_for="memory", optimizer_state_offloading=False) == (True, False)
    assert _memory(optimise_for="speed", recomputation=True) == (True, False)


COMMANDS = [
    (["--stages=4", "--device-mapping", "0", "2", "2", "0"], "leaves device 1 without a stage"),
    (["--pipeline-schedule=gpipe"], "has no effect without pipeline stages"),
    (["--stages=2", "--stage-options", "{stage: 5}"], "--stage-options names stage 5"),
    (
        ["--stages=4", "--pipeline-schedule=grouped", "--gradient-accumulation-count=6"],
        "--gradient-accumulation-count",
    ),
    (["--stages=99"], "--stages 99"),
    (["--pipeline-splits", "no_such_layer"], "no_such_layer"),
]


@pytest.mark.parametrize(("words", "said"), COMMANDS)
def test_bad_input_ends_with_status_2_and_writes_nothing(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    command = ["train", "--dataset=digits", "--device=cpu", f"--output-dir={out}", *words]
    status = main(command)
    assert status == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["1f1b", "1F1B", "interleaved", "Interleaved"])
def test_the_default_schedule_has_two_names(name: str) -> None:
    recipe = resolve_recipe(overrides={"stages": 2, "pipeline_schedule": name}).recipe
    assert recipe.pipeline_schedule == "1f1b"
