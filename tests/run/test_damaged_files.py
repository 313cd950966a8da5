"""A run directory with a damaged, empty or missing file: what needs it says so, all else goes on."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from drivetrain.cli.main import main
from drivetrain.store.update_history import load_history
from tests.run.rank_runs import weights
from tests.run.small_runs import LITTLE

pytestmark = pytest.mark.usefixtures("no_pictures")

OPTIONS = [*LITTLE, "--checkpoint-every=2", "--lr-schedule=const", "--num-threads=1"]
CONTENTS = {
    "empty": b"",
    "cut short": b'{"model": ',
    "a list": b"[]",
    "another object": b'{"model": 3, "total_updates": {}, "class_names": 5, "update": "x", "splits": 1}',
    "no text": bytes(range(128, 256)),
}
DAMAGES = [*CONTENTS, "missing"]


def _train(path: Path, *options: str) -> int:
    return main(["train", *OPTIONS, f"--output-dir={path}", *options])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four updates, undisturbed."""
    path = tmp_path_factory.mktemp("sound") / "run"
    assert _train(path, "--max-updates=4") == 0
    return path


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six updates, undisturbed."""
    path = tmp_path_factory.mktemp("straight") / "run"
    assert _train(path, "--max-updates=6") == 0
    return path


@pytest.fixture
def spoil(sound: Path, tmp_path: Path) -> Callable[[str, str], Path]:
    def spoilt(name: str, damage: str) -> Path:
        run = tmp_path / "run"
        shutil.copytree(sound, run)
        if damage == "missing":
            (run / name).unlink()
        else:
            (run / name).write_bytes(CONTENTS[damage])
        return run

    return spoilt


@pytest.fixture
def image(tmp_path: Path) -> str:
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "digit.png")
    return str(tmp_path / "digit.png")


def _same_weights(one: Path, other: Path) -> bool:
    expected, found = weights(one), weights(other)
    return all(found[name].tobytes() == value.tobytes() for name, value in expected.items())


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["plan.json", "updates.npz", "metrics.jsonl", "data.json"])
def test_a_training_goes_on_to_the_same_weights(
    name: str,
    damage: str,
    spoil: Callable[[str, str], Path],
    straight: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = spoil(name, damage)
    assert _train(run, "--max-updates=6") == 0
    assert _same_weights(straight, run)
    said = capsys.readouterr().out
    if name == "updates.npz":
        assert (
            f"{name} is {'missing' if damage == 'missing' else 'damaged'}, so curves and reports lack" in said
        )
    elif name == "plan.json" and damage not in ("missing", "another object"):
        assert f"{name} " in said
        assert "it is written again" in said


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["plan.json", "updates.npz", "metrics.jsonl", "identity.json"])
def test_other_commands_do_without(
    name: str, damage: str, spoil: Callable[[str, str], Path], image: str, tmp_path: Path
) -> None:
    run = spoil(name, damage)
    assert main(["evaluate", str(run), "--device=cpu", "--compile=off"]) == 0
    output = f"--output={tmp_path / 'predictions'}"
    assert main(["predict", str(run), image, output, "--device=cpu", "--compile=off"]) == 0
    assert main(["runs", str(run)]) == 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_data_json_is_asked_for_in_one_sentence(
    damage: str, spoil: Callable[[str, str], Path], image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = spoil("data.json", damage)
    assert main(["evaluate", str(run), "--device=cpu"]) == 2
    assert main(["predict", str(run), image, "--device=cpu"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("cannot be read" in line for line in lines)
    assert main(["runs", str(run)]) == 0


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["identity.json", "recipe.yaml"])
def test_no_checkpoint_is_cleared_away_where_the_runs_description_is_damaged(
    name: str, damage: str, spoil: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = spoil(name, damage)
    assert _train(run, "--max-updates=6") == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert (run / "checkpoints" / "4" / "manifest.json").is_file()
    if damage == "missing":
        assert f"holds a run without its {name}" in said
        assert _train(run, "--max-updates=6", "--overwrite") == 0


def test_every_flipped_byte_of_the_losses_is_noticed_or_harmless(
    spoil: Callable[[str, str], Path], sound: Path
) -> None:
    run = spoil("plan.json", "missing")
    path, expected = run / "updates.npz", load_history(sound / "updates.npz")
    content = path.read_bytes()
    noticed = 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        found = load_history(path)
        noticed += not found
        for name, column in found.items():
            if name in expected:
                assert column.tobytes() == expected[name].tobytes()
    assert noticed > len(content) // 2


def test_losses_of_an_older_version_are_read(sound: Path, tmp_path: Path) -> None:
    columns = load_history(sound / "updates.npz")
    np.savez(tmp_path / "updates.npz", **columns)  # type: ignore[arg-type]
    found = load_history(tmp_path / "updates.npz")
    assert found.keys() == columns.keys() >= {"loss", "learning_rate"}
    assert found["loss"].tobytes() == columns["loss"].tobytes()


def test_damaged_lines_of_the_metrics_are_counted(
    spoil: Callable[[str, str], Path], sound: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = spoil("plan.json", "missing")
    lines = (sound / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join(["{", '{"event": 3}', *lines[:-1], '{"event": "tr']))
    assert _train(run, "--max-updates=6") == 0
    assert "(2 left out)" in capsys.readouterr().out
    assert all(json.loads(line)["event"] for line in (run / "metrics.jsonl").read_text().splitlines())


@pytest.mark.parametrize("parent", ["", "folder"])
@pytest.mark.parametrize("command", ["train", "crossval"])
def test_an_output_folder_with_a_name_of_300_characters_is_refused(
    command: str, parent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / parent / ("x" * 300)
    folds = ["--folds=2"] if command == "crossval" else []
    assert main([command, *OPTIONS, *folds, f"--output-dir={path}"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"drivetrain {command}: error: --output-dir {tmp_path}")
    assert "too long" in said
    assert "try --output-dir runs/mine" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["evaluate", "predict", "export", "runs"])
def test_a_run_with_a_name_of_300_characters_is_refused_in_one_sentence(
    command: str, image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = [image] if command == "predict" else []
    assert main([command, str(tmp_path / ("x" * 300)), *inputs]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "too long" in said
