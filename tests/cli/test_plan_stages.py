"""Stages at the command line: what `plan` prints of them, and the worked cases of splits and mappings."""

import json
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.main import main

RESNET8 = ["--model=cifar_resnet8", "--dataset=synthetic", "--dataset-size=64", "--micro-batch-size=2"]
TOY = ["--model=toy_model", "--dataset=synthetic", "--dataset-size=64", "--micro-batch-size=2"]
SPLITS = [
    "--pipeline-splits",
    "conv2_block1_post_addition_relu",
    "conv3_block1_post_addition_relu",
    "conv4_block1_post_addition_relu",
]


def _plan(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["plan", "--measure", "off", *arguments, "--json"]) == 0
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    return plan


REFUSED = {
    "case 94": ([*RESNET8, "--pipeline-splits", "foo"], "foo: the model has no such layer"),
    "case 95": ([*TOY, "--pipeline-splits", "conv2d_1", "conv2d_0"], "--pipeline-splits"),
    "case 96": (
        [*RESNET8, "--pipeline-splits", "conv3", "fc_layer", "--device-mapping", "0", "1"],
        "names 2 devices for 3 stages",
    ),
    "case 97": (
        [*RESNET8, "--stages", "3", "--device-mapping", "1", "2", "3"],
        "without a stage",
    ),
    "case 116": (
        [*RESNET8, "--stages", "4", "--device-mapping", "0", "1", "2", "4"],
        "leaves device 3 without a stage",
    ),
    "case 138, 4": (
        [*RESNET8, *SPLITS, "--pipeline-schedule=Grouped", "--gradient-accumulation-count=4"],
        "--gradient-accumulation-count 8 or 16 works",
    ),
    "case 138, 12": (
        [*RESNET8, *SPLITS, "--pipeline-schedule=grouped", "--gradient-accumulation-count=12"],
        "--gradient-accumulation-count 8 or 16 works",
    ),
    "too many stages": ([*TOY, "--stages", "50"], "--stages 50"),
    "no stages": ([*TOY, "--pipeline-schedule=gpipe"], "--stages 2"),
}


@pytest.mark.parametrize("command", ["plan", "train"])
@pytest.mark.parametrize("case", REFUSED)
def test_bad_stages_end_with_2_and_one_sentence(
    case: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, words = REFUSED[case]
    in_process = ["--replicas=1", "--device=cpu"] if command == "train" else []
    if command == "train" and case in ("case 94", "case 95", "too many stages"):
        in_process.append("--device-mapping")
        in_process += ["0"] * (50 if case == "too many stages" else len(arguments) - 4)
    assert main([command, *arguments, *in_process]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_layers_are_listed_where_a_split_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--measure", "off", *TOY, "--pipeline-splits", "foo"]) == 2
    assert "conv2d_0" in capsys.readouterr().err


def test_case_98_layers_belong_to_the_stage_of_the_split_before_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = _plan([*TOY, "--pipeline-splits", "conv2d_1", "flatten"], capsys)
    firsts = [(stage["first"], stage["index"]) for stage in plan["stages"]]
    assert firsts == [("conv2d_0", 0), ("conv2d_1", 1), ("flatten", 2)]


@pytest.mark.parametrize(
    ("arguments", "splits"),
    [
        pytest.param([*RESNET8, "--stages=2"], ["conv4_block1_layer1_bn"], id="case 102, 2"),
        pytest.param(
            [*RESNET8, "--stages=4"],
            ["conv3_block1_layer2_conv", "conv4_block1_layer1_bn", "conv4_block1_layer2_conv"],
            id="case 102, 4",
        ),
        pytest.param([*TOY, "--stages=2"], ["conv2d_1"], id="case 104"),
        pytest.param(["--model=mnist_cnn", "--dataset=mnist", "--stages=2"], ["conv2d_1"], id="case 105"),
    ],
)
def test_splits_by_parameters(
    arguments: list[str], splits: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _plan([*arguments, "--split-by=parameters"], capsys)
    assert plan["splits"] == {"by": "parameters", "used": splits, "recommended": splits}


def test_case_117_recomputation_works_without_stages(capsys: pytest.CaptureFixture[str]) -> None:
    plan = _plan([*RESNET8, "--recomputation"], capsys)
    assert plan["memory"]["blocks"] > 1
    assert plan["memory"]["devices"][0]["savings"]["recomputation"] > 0
    assert len(plan["stages"]) == 1
    assert "schedule" not in plan


def test_case_137_1f1b_takes_any_accumulation_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = _plan([*RESNET8, "--stages=3", "--gradient-accumulation-count=10"], capsys)
    said = [warning for warning in plan["warnings"] if "is not a multiple of the 3 stages" in warning]
    assert len(said) == 1


def test_case_138_grouped_takes_twice_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*RESNET8, *SPLITS, "--pipeline-schedule=Grouped", "--gradient-accumulation-count=8"]
    plan = _plan(arguments, capsys)
    assert plan["schedule"]["live"] == [7, 5, 3, 1]
    assert plan["splits"]["used"] != plan["splits"]["recommended"]
    assert plan["layout"] == {"replicas": 1, "stages": 4, "devices": 4, "ranks": 4}
    assert sum(stage["flops"] for stage in plan["stages"]) == plan["model"]["flops"]
    assert sum(stage["parameters"] for stage in plan["stages"]) == plan["model"]["parameters"]
    assert 0 < plan["schedule"]["bubble"] < 1
    assert all(
        isinstance(stage[key], int) for stage in plan["stages"] for key in ("sent_bytes", "peak_bytes")
    )


def test_a_plan_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    plan = _plan([*RESNET8, "--stages=2", "--split-by=time"], capsys)
    assert plan["splits"]["by"] == "time"
    assert any("--split-by time" in warning for warning in plan["warnings"])


def test_stages_are_shown_as_tables_and_a_picture(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["plan", "--measure", "off", *RESNET8, *SPLITS, "--gradient-accumulation-count=4"]) == 0
    shown = capsys.readouterr().out
    for part in ("stage", "conv2_block1_post_addition_relu", "recommended: --pipeline-splits", "1f1b"):
        assert part in shown
    assert "\n0: F0" in shown
    assert "\n3: " in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_a_plain_plan_does_not_wait_for_stages(capsys: pytest.CaptureFixture[str]) -> None:
    plan = _plan(TOY, capsys)
    assert plan["layout"] == {"replicas": 1, "stages": 1, "devices": 1, "ranks": 1}
    assert plan["stages"] == [
        {
            "index": 0,
            "device": 0,
            "parameters": plan["model"]["parameters"],
            "flops": plan["model"]["flops"],
            "sent_bytes": 0,
        }
    ]
    assert not {"schedule", "splits"} & set(plan)
    assert plan["memory"]["peak_bytes"] > 0
