"""Which series of suites are compared, and what the ratios are."""

import json
from pathlib import Path
from typing import Any

import pytest

from drivetrain.bench.suite.speedups import compare_suites, differing_settings, is_suite, speedup_rows
from drivetrain.core.errors import BadInputError


def _write(path: Path, series: dict[str, float], *, image_size: int = 224, **changes: Any) -> str:
    entries = [
        {
            "name": f"{name} {model}",
            "device": name.split()[0],
            "variant": name.split()[1],
            "work": "train",
            "model": model,
            "batch_size": 1,
            "label": f"{model}_1",
            "images_per_second": speed * factor,
            "flops_per_parameter": 100.0,
        }
        for name, speed in series.items()
        for model, factor in (("a", 1.0), ("b", 4.0))
    ]
    entries.append({**entries[0], "model": "failed", "images_per_second": None})
    entries.append({**entries[0], "model": "fell back", "status": "not compiled"})
    result = {
        "benchmark": "suite",
        "machine": {},
        "workload": {"image_size": image_size},
        "settings": {},
        "entries": entries,
        **changes,
    }
    path.write_text(json.dumps(result))
    return str(path)


def _titles(*paths: str) -> list[str]:
    return [pair.title for pair in compare_suites(paths)]


def test_speedups_are_ratios_to_the_first_file(tmp_path: Path) -> None:
    a, b = _write(tmp_path / "a.json", {"cpu eager": 2.0}), _write(tmp_path / "b.json", {"cuda eager": 6.0})
    (pair,) = compare_suites([a, b])
    assert [each.speedup for each in pair.speedups] == [3.0, 3.0]
    assert [each.model for each in pair.speedups] == ["a", "b"]
    assert pair.mean("train") == pytest.approx(3.0)
    assert pair.mean("infer") is None
    table = speedup_rows([pair])
    assert table[1][-1] == "3.00x"
    assert table[-1][0] == "train, geometric mean"


def test_which_series_belong_together(tmp_path: Path) -> None:
    one = _write(tmp_path / "one.json", {"cpu eager": 1.0})
    two = _write(tmp_path / "two.json", {"cuda eager": 2.0, "cuda captured": 4.0})
    same = _write(tmp_path / "same.json", {"cuda eager": 2.0, "cuda captured": 4.0})
    other = _write(tmp_path / "other.json", {"xpu captured": 2.0, "xpu compiled": 4.0})
    assert _titles(one, two) == ["two cuda eager / one cpu eager", "two cuda captured / one cpu eager"]
    assert _titles(two, same) == [
        "same cuda eager / two cuda eager",
        "same cuda captured / two cuda captured",
    ]
    assert _titles(two, other) == ["other xpu captured / two cuda captured"]
    assert _titles(two) == ["cuda captured / cuda eager"]
    assert _titles(one) == []


def test_other_work_is_refused(tmp_path: Path) -> None:
    a = _write(tmp_path / "a.json", {"cpu eager": 2.0})
    b = _write(tmp_path / "b.json", {"cpu eager": 2.0}, image_size=64)
    with pytest.raises(BadInputError, match="image_size"):
        compare_suites([a, b])
    c = _write(tmp_path / "c.json", {"cpu eager": 2.0}, benchmark="train")
    assert is_suite(a)
    assert not is_suite(c)
    with pytest.raises(BadInputError, match="bench train"):
        compare_suites([a, c])
    with pytest.raises(BadInputError, match=r"no suite\.json"):
        compare_suites([str(tmp_path)])


def test_settings_that_differ_are_told(tmp_path: Path) -> None:
    a = _write(tmp_path / "a.json", {"cpu eager": 1.0}, settings={"precision": "32.32", "num_threads": None})
    b = _write(tmp_path / "b.json", {"cpu eager": 1.0}, settings={"precision": "auto", "num_threads": 2})
    assert differing_settings([a, a]) == []
    assert differing_settings([a, b]) == [
        f"the suites differ in --precision: 32.32 in {a}, auto in {b}",
        f"the suites differ in --num-threads: torch's choice in {a}, 2 in {b}",
    ]
