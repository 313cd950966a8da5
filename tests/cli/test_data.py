"""`drivetrain data`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from drivetrain.catalogue.data_sets import dataset_names
from drivetrain.cli.main import main
from drivetrain.data.files.tiff_pages import write_pages
from tests.data.folders import truncate, write_images
from tests.data.mask_files import grey, save, write_pairs
from tests.data.sources.cifar_files import write_binary10
from tests.data.sources.isbi_files import write_isbi
from tests.data.sources.mnist_files import write_mnist

Captured = pytest.CaptureFixture[str]


def test_list(capsys: Captured) -> None:
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["data", *dataset_names()]
    assert "image-net.org" in lines[6]
    assert main(["data", "list", "--json"]) == 0
    listed = {info["name"]: info for info in json.loads(capsys.readouterr().out)}
    assert listed["cifar10"]["train_samples"] == 50000
    assert "train_samples" not in listed["image-folder"]


def test_check_of_a_smaller_set_is_a_warning(tmp_path: Path, capsys: Captured) -> None:
    write_mnist(tmp_path)
    write_binary10(tmp_path)
    for name, counts in (
        ("mnist", "12 training and 5 validation"),
        ("cifar10", "15 training and 3 validation"),
    ):
        assert main(["data", "check", name, "--data-dir", str(tmp_path)]) == 0
        output = capsys.readouterr()
        assert counts in output.out
        assert "warning" in output.err


def test_check_of_a_whole_set(capsys: Captured) -> None:
    assert main(["data", "check", "digits"]) == 0
    output = capsys.readouterr()
    assert "1797 training and 0 validation samples, 10 classes" in output.out
    assert "All files can be read and all counts are as expected." in output.out
    assert output.err == ""


def test_check_fails_on_files_that_cannot_be_read(tmp_path: Path, capsys: Captured) -> None:
    write_mnist(tmp_path)
    truncate(tmp_path / "train-images-idx3-ubyte.gz")
    assert main(["data", "check", "mnist", "--dataset_path", str(tmp_path)]) == 1
    assert "train-images-idx3-ubyte.gz is truncated" in capsys.readouterr().err
    write_images(tmp_path / "images", {"a": 3, "b": 2}, sizes=((40, 40), (20, 30)))
    assert main(["data", "check", "image-folder", "--data-dir", str(tmp_path / "images")]) == 0
    assert "5 training and 0 validation samples, 2 classes" in capsys.readouterr().out
    truncate(tmp_path / "images" / "a" / "001.png")
    assert main(["data", "check", "image-folder", "--data-dir", str(tmp_path / "images"), "--json"]) == 1
    (bad,) = json.loads(capsys.readouterr().out)["bad_samples"]
    assert bad["name"].endswith("a/001.png")


def test_pack_and_check_it(tmp_path: Path, capsys: Captured) -> None:
    write_images(tmp_path / "src", {"a": 3, "b": 2})
    truncate(tmp_path / "src" / "a" / "001.png")
    source, pack = str(tmp_path / "src"), str(tmp_path / "pack")
    assert main(["data", "pack", source, pack]) == 1
    assert "a/001.png cannot be read" in capsys.readouterr().err
    assert main(["data", "pack", source, pack, "--on-bad-sample", "skip", "--image-size", "4"]) == 0
    output = capsys.readouterr()
    assert "5 train samples, 192 bytes" in output.out
    assert "left out: " in output.err
    assert main(["data", "check", "packed", "--data-dir", pack]) == 1
    (tmp_path / "pack" / "train-00000.bin").write_bytes(bytes(192))
    assert main(["data", "check", "packed", "--data-dir", pack]) == 1
    assert "train-00000.bin changed since it was packed" in capsys.readouterr().err


def test_check_of_images_with_masks(tmp_path: Path, capsys: Captured) -> None:
    write_pairs(tmp_path / "mine", values=(0, 1, 2))
    save(tmp_path / "mine" / "images" / "wide.png", grey(12, 40))
    save(tmp_path / "mine" / "masks" / "wide.png", np.ones((12, 40), dtype=np.uint8))
    assert main(["data", "check", "mask-folder", "--data-dir", str(tmp_path / "mine")]) == 0
    output = capsys.readouterr()
    assert "4 training and 0 validation samples, 3 classes" in output.out
    assert "images: 3 of 12x10, 1 of 12x40" in output.out
    assert "All files can be read and all counts are as expected." in output.out
    truncate(tmp_path / "mine" / "masks" / "1.png")
    assert main(["data", "check", "mask-folder", "--data-dir", str(tmp_path / "mine"), "--json"]) == 1
    checked = json.loads(capsys.readouterr().out)
    assert sum(checked["class_shares"].values()) == pytest.approx(1)
    assert "masks/1.png" in checked["bad_samples"][0]["reason"]
    (tmp_path / "mine" / "masks" / "wide.png").unlink()
    assert main(["data", "check", "mask-folder", "--data-dir", str(tmp_path / "mine")]) == 1
    assert "no mask was found for" in capsys.readouterr().err


def test_check_of_volumes(tmp_path: Path, capsys: Captured) -> None:
    images, labels = write_isbi(tmp_path)
    write_pages(tmp_path / "test-volume.tif", list(images))
    assert main(["data", "check", "isbi2012", "--data-dir", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert "5 training and 0 validation samples, 5 test samples, 2 classes" in output.out
    assert f"membrane {(labels == 0).mean():.2%}, cell {(labels == 255).mean():.2%}" in output.out
    assert "the complete data set has 30 of 512x512" in output.err
    full = np.zeros((30, 512, 512), dtype=np.uint8)
    for name in ("train-volume.tif", "train-labels.tif"):
        write_pages(tmp_path / name, list(full))
    assert main(["data", "check", "isbi2012", "--data-dir", str(tmp_path)]) == 0
    assert "train-labels.tif does not contain the pixels of the challenge" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "mnits", "--data-dir", "."], "Did you mean --dataset mnist?"),
        (["check", "mnist"], "needs --data-dir DIR"),
        (["check", "cifar10", "--data-dir", "nowhere"], "--data-dir nowhere is not an existing folder"),
        (["check", "synthetic"], "nothing to check"),
        (["fetch", "imagenet", "--data-dir", "x"], "nothing to download"),
        (["fetch", "mnist"], "needs --data-dir DIR"),
        (["fetch", "isbi2012"], "needs --data-dir DIR"),
        (["check", "synthetic-em"], "nothing to check"),
        (["check", "mask-folder"], "needs --data-dir DIR"),
        (
            ["fetch", "mnist", "--data-dir", "x", "--mirror", "ftp://x"],
            "--mirror ftp://x must start with http",
        ),
        (["pack", "nowhere", "x"], "SRC nowhere is not an existing folder"),
        (["pack", "nowhere", "x", "--image-size", "0"], "--image-size 224 works"),
        (["pack", "nowhere", "x", "--channels", "1"], "--channels 1 has no effect"),
        (["pack", "nowhere", "x", "--chanels", "1"], "Did you mean --channels?"),
        (["forget"], "forget is not a command. Commands: list, look, fetch, check, pack."),
    ],
)
def test_errors_are_one_sentence(
    words: list[str], said: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_fetch_shows_the_licence_and_fails_in_one_sentence(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert main(["data", "fetch", "mnist", "--data-dir", str(tmp_path)]) == 1
    output = capsys.readouterr()
    assert "licence: CC BY-SA 3.0" in output.out
    assert "train-images-idx3-ubyte.gz could not be downloaded" in output.err
    lines = [line for line in output.err.splitlines() if not line.endswith(" so far")]
    assert len(lines) == 1


def test_data_commands_do_not_import_torch(tmp_path: Path) -> None:
    write_images(tmp_path / "src", {"a": 2})
    for words in (["list"], ["check", "image-folder", "--data-dir", "src"], ["pack", "src", "pack"]):
        script = (
            "import sys; from drivetrain.cli.main import main\n"
            f"assert main({['data', *words]!r}) == 0\n"
            "assert 'torch' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, capture_output=True)
