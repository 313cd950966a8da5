"""`drivetrain bench`, as a user calls it."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drivetrain.bench import machine as peak
from drivetrain.cli.main import main

Capture = pytest.CaptureFixture[str]

SMALL = [
    "--dataset=digits",
    "--model=cifar_resnet8",
    "--micro-batch-size=4",
    "--num-threads=1",
    "--device=cpu",
]
FEW = ["--warmup-steps=1", "--steps=2", "--repeats=2"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(peak, "_SIDES", {"cpu": 64})
    monkeypatch.setattr(peak, "_COPIED_BYTES", {"cpu": 2**16})
    monkeypatch.setattr(peak, "_LEAST_S", 0.0)


def _json(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def test_training_is_measured_and_compared(tmp_path: Path, capsys: Capture) -> None:
    assert main(["bench", "train", *SMALL, *FEW, "--output", "a.json"]) == 0
    assert main(["bench", "train", *SMALL, *FEW, "--data", "device", "--output", "b.json"]) == 0
    shown = capsys.readouterr().out
    assert "images/s" in shown
    assert "settings: data device" in shown
    found = _json("a.json")
    assert found["command"].startswith("drivetrain bench train --dataset digits --model cifar_resnet8")
    assert len(found["entries"][0]["repeats"]) == 2
    assert main(["bench", "compare", "a.json", "b.json", "--output", "ratios.json"]) == 0
    assert "b / a" in capsys.readouterr().out
    assert _json("ratios.json")["files"] == ["a", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.json",
        "b.json",
        "bench-compare.png",
        "ratios.json",
    ]


def test_two_replicas_are_launched(capsys: Capture) -> None:
    options = [*SMALL, *FEW, "--data=host", "--num-workers=0", "--replicas=2", "--output=a.json"]
    assert main(["bench", "train", *options]) == 0
    found = _json("a.json")
    assert found["settings"]["replicas"] == found["peak"]["devices"] == 2
    assert found["settings"]["global_batch_size"] == 8


def test_inference_of_replicas_on_images_of_the_host(capsys: Capture) -> None:
    options = [*SMALL, *FEW, "--host-generated-data", "--replicas=2", "--batch-sizes", "2", "--output=a.json"]
    assert main(["bench", "infer", *options]) == 0
    found = _json("a.json")
    assert (found["settings"]["data"], found["settings"]["replicas"]) == ("host", 2)
    assert found["peak"]["devices"] == 2
    (entry,) = found["entries"]
    assert all(len(repeat["step_seconds"]) == 2 * 2 for repeat in entry["repeats"])
    assert entry["images_per_second"] == pytest.approx(2 * 2 / entry["seconds_per_batch"])
    written = capsys.readouterr()
    assert "global batch" not in written.out + written.err


def test_replicas_that_share_the_cores_are_on_one_machine(capsys: Capture) -> None:
    small = [option for option in SMALL if "threads" not in option]
    options = [*small, *FEW, "--data=device"]
    assert main(["bench", "train", *options, "--num-threads=2", "--output=a.json"]) == 0
    assert main(["bench", "train", *options, "--num-threads=1", "--replicas=2", "--output=b.json"]) == 0
    assert _json("a.json")["machine"] == _json("b.json")["machine"]
    assert main(["bench", "compare", "a.json", "b.json"]) == 0
    written = capsys.readouterr()
    assert "different machines" not in written.out + written.err
    assert "replicas 1 -> 2" in written.out
    assert "threads 2 -> 1" in written.out


def test_the_spelling_of_other_systems(tmp_path: Path, capsys: Capture) -> None:
    assert main(["train", *SMALL, "--benchmark", "--warmup_steps", "1", "--max_steps", "3"]) == 0
    assert "warmup_steps 1, steps 2, repeats 1" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert main(["train", *SMALL, "--benchmark", "--warmup-steps", "3", "--max-updates", "3"]) == 2
    assert "--max-updates 23 works" in capsys.readouterr().err
    assert main(["train", *SMALL, "--warmup-steps", "3"]) == 2
    assert "has no effect without --benchmark" in capsys.readouterr().err
    assert main(["train", *SMALL, "--benchmark", "--max-updates", "many"]) == 2


def test_inference_of_a_run(tmp_path: Path, capsys: Capture) -> None:
    length = ["--limit-train-samples=16", "--num-epochs=1", "--validation=False", "--output-dir=run"]
    assert main(["train", *SMALL, *length]) == 0
    assert main(["bench", "infer", "run", *FEW, "--num-threads=1", "--batch-sizes", "1", "2"]) == 0
    assert "infer batch 2" in capsys.readouterr().out
    assert main(["bench", "infer", "run", "--model", "resnet50"]) == 2
    assert "--model has no effect on RUN run" in capsys.readouterr().err
    assert main(["bench", "infer", "run", "--config", "mnist_tutorial"]) == 2
    assert main(["bench", "infer", "run", "--checkpoint", "99"]) == 2


@pytest.mark.parametrize(
    ("action", "given", "kept"),
    [
        ("infer", ["--batch-sizes", "2"], ["--batch-sizes", "2"]),
        ("infer", ["--batch-sizes", "2", "--repeats", "3"], ["--batch-sizes", "2"]),
        ("data", ["--needed", "1000000"], ["--needed", "1000000"]),
        ("train", ["--data", "device"], ["--data", "device"]),
    ],
)
def test_the_command_holds_no_option_that_was_not_given(
    capsys: Capture, action: str, given: list[str], kept: list[str]
) -> None:
    options = ["--warmup-steps", "0", "--steps", "1", "--output", "a.json"]
    assert main(["bench", action, *SMALL, *given, *options]) == 0
    words = shlex.split(_json("a.json")["command"])
    recipe = [word for option in SMALL for word in option.split("=")]
    assert words[:3] == ["drivetrain", "bench", action]
    assert sorted(words[3:]) == sorted([*recipe, *kept, *options])
    shown = capsys.readouterr().out
    assert "None" not in shown
    assert "1 threads" not in shown
    assert "e+0" not in shown


def test_data_and_what_is_needed(capsys: Capture) -> None:
    assert main(["bench", "data", *SMALL, *FEW, "--augment", "--needed", "0.001", "--output", "d.csv"]) == 0
    shown = capsys.readouterr().out
    assert "the feed keeps up" in shown
    assert Path("d.csv").read_text().startswith("name,images_per_second,read_per_second")


def test_options_without_effect_are_named(capsys: Capture) -> None:
    idle = ["--learning-rate=0.2", "--stages=1"]
    assert main(["bench", "data", *SMALL, *FEW, *idle]) == 0
    shown = capsys.readouterr().out
    assert "--learning-rate 0.2 has no effect on bench data." in shown
    assert "--stages 1 has no effect on bench data." in shown
    assert main(["bench", "infer", *SMALL, *FEW, "--batch-sizes=1", "--stages=1"]) == 0
    shown = capsys.readouterr().out
    assert "--stages 1 has no effect on bench infer." in shown
    assert "--micro-batch-size 4 has no effect on bench infer." in shown
    assert "--dataset" not in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "--seconds", "0"], "--seconds 1 works"),
        (["train", "--seconds", "1", "--replicas", "2"], "needs a single process, and there are 2 ranks"),
        (["infer", "--seconds", "1", "--replicas", "2"], "needs a single process, and there are 2 ranks"),
        (["train", "--data", "device", "--host-generated-data"], "contradicts --data device"),
        (["infer", "--captured"], "--captured --compile off works"),
        (["infer", "--captured", "--compile", "off"], "--captured needs a CUDA device, this is cpu"),
        (["train", "--steps", "0"], "--steps 3 works"),
        (["train", "--output", "a.txt"], "--output result.json works"),
        (["train", "--data", "cloud"], "must be one of"),
        (["train", "--modle", "x"], "Did you mean --model?"),
        (["infer", "--batch-sizes", "0"], "--batch-sizes 1 16 works"),
        (["infer", "nowhere"], "does not exist"),
        (["infer", "--checkpoint", "best"], "needs a RUN"),
        (["data", "--needed", "-1"], "--needed 500 works"),
        (["data", "--needed", "inf"], "--needed 500 works"),
        (["compare", "a.json"], "two files or more"),
        (["compare", "a.json", "b.json"], "cannot be read"),
        (["compare", "a.json", "b.json", "--picture", "x.jpg"], "--picture result.png works"),
    ],
)
def test_bad_input_is_one_sentence(capsys: Capture, arguments: list[str], said: str) -> None:
    assert main(["bench", *arguments]) == 2
    written = capsys.readouterr()
    assert said in written.err
    assert written.err.count("\n") == 1
    assert list(Path().iterdir()) == []


def test_bad_input_is_refused_without_torch() -> None:
    code = (
        "import sys; from drivetrain.cli.main import main;"
        "assert main(['bench', 'train', '--repeats', '0']) == 2;"
        "assert main(['bench', 'compare', 'a', 'b']) == 2; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
