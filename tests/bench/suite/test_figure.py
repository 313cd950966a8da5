"""The figures of suites."""

from pathlib import Path

import pytest
from PIL import Image

from drivetrain.bench.suite.figure import draw_rooflines, draw_speedups
from drivetrain.bench.suite.speedups import Pair, Speedup
from drivetrain.core.errors import BadInputError


def _pair(*works: str) -> Pair:
    speedups = tuple(
        Speedup(
            label=f"net{number}_{batch}",
            work=work,
            model=f"net{number}",
            batch_size=batch,
            speedup=1.0 + number / batch,
            per_parameter=100.0 * (1 + number),
            per_byte=None,
        )
        for work in works
        for number in range(3)
        for batch in (1, 32)
    )
    return Pair(base="a", other="b", speedups=speedups)


def test_two_panels_with_every_label(tmp_path: Path) -> None:
    files = draw_speedups([_pair("infer", "train")], tmp_path / "x.y", per="parameter")
    assert [path.name for path in files] == ["x.y.png", "x.y.svg"]
    with Image.open(files[0]) as picture:
        assert picture.width == 1700
    with Image.open(draw_speedups([_pair("train")], tmp_path / "one", per="parameter")[0]) as picture:
        assert picture.width == 850
    text = files[1].read_text()
    # matplotlib writes the text of an SVG as paths, with the text itself as a comment.
    assert text.count("net1_32") == 2
    assert "speed-up: b / a" in text


def test_an_intensity_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="--intensity parameter"):
        draw_speedups([_pair("train")], tmp_path / "x", per="byte")


def test_a_roofline_for_each_device(tmp_path: Path) -> None:
    entries = [
        {
            "device": device,
            "variant": "eager",
            "work": "train",
            "batch_size": 1,
            "label": "net_1",
            "images_per_second": 1.0,
            "flops_per_byte": 10.0,
            "tflops": 0.5,
            "peak_tflops": 1.0,
            "peak_gb_per_second": 100.0,
        }
        for device in ("cpu", "cuda:0")
    ]
    entries.append(
        {"device": "cpu", "variant": "eager", "work": "train", "batch_size": 32, "label": "failed"}
    )
    files = draw_rooflines({"machine": {"cpu": {"cpu": "a processor"}}, "entries": entries}, tmp_path / "s")
    assert [path.name for path in files] == [
        f"s-roofline-{device}.{kind}" for device in ("cpu", "cuda0") for kind in ("png", "svg")
    ]
    assert "training, a processor" in files[1].read_text()
