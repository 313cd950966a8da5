"""Ratios of results, and what cannot be compared."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from drivetrain.bench.compare import compare_files, draw_comparison
from drivetrain.core.errors import BadInputError


def _write(path: Path, **changes: Any) -> str:
    result: dict[str, Any] = {
        "benchmark": "infer",
        "machine": {"cpu": "one", "cores": 2},
        "workload": {"model": "resnet50", "image": "3x224x224"},
        "settings": {"compile": "off"},
        "entries": [
            {"name": "infer batch 1", "images_per_second": 10.0, "p50_seconds": 0.1},
            {"name": "infer batch 16", "images_per_second": 20.0},
        ],
        **changes,
    }
    path.write_text(json.dumps(result))
    return str(path)


def test_ratios_are_to_the_first_file(tmp_path: Path) -> None:
    entries = [{"name": "infer batch 1", "images_per_second": 25.0, "p50_seconds": 0.05}]
    paths = [
        _write(tmp_path / "a.json"),
        _write(tmp_path / "b.json", entries=entries, settings={"compile": "on"}),
        _write(tmp_path / "c.json"),
    ]
    found = compare_files(paths)
    assert found.names == ("a", "b", "c")
    assert [(ratio.entry, ratio.figure, ratio.ratios) for ratio in found.ratios] == [
        ("infer batch 1", "images_per_second", (2.5, 1.0)),
        ("infer batch 1", "p50_seconds", (0.5, 1.0)),
    ]
    assert found.rows()[1] == ["infer batch 1", "images/s", "10", "25", "10", "2.500x", "1.000x"]
    assert found.warnings == (f"only one of {paths[0]} and {paths[1]} contains infer batch 16.",)
    assert found.to_json()["ratios"][0]["values"] == [10.0, 25.0, 10.0]
    assert found.differences == ("a -> b: compile off -> on",)


def test_other_machines_are_warned_of(tmp_path: Path) -> None:
    paths = [_write(tmp_path / "a.json"), _write(tmp_path / "b.json", machine={"cpu": "two", "cores": 2})]
    (warning,) = compare_files(paths).warnings
    assert "different machines: cpu one versus two" in warning


def test_threads_that_ranks_share_out_make_no_other_machine(tmp_path: Path) -> None:
    paths = [
        _write(tmp_path / "a.json", settings={"threads": 2}),
        _write(tmp_path / "b.json", settings={"threads": 1, "replicas": 2}),
        _write(tmp_path / "c.json", machine={"cpu": "one, 1 threads", "cores": 2}, settings={"threads": 2}),
    ]
    found = compare_files(paths)
    assert found.warnings == ()
    assert found.differences == ("a -> b: threads 2 -> 1, replicas not set -> 2",)


def test_files_of_one_name_keep_their_folders(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    paths = [_write(tmp_path / "a.json"), _write(tmp_path / "old" / "a.json")]
    assert compare_files(paths).names == tuple(paths)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"benchmark": "train"}, "bench infer and .* of bench train"),
        ({"workload": {"model": "resnet18", "image": "3x224x224"}}, "model is resnet50 .* resnet18"),
        ({"entries": [{"name": "infer batch 2", "images_per_second": 1.0}]}, "no entry in common"),
        ({"entries": [{}]}, "not the result of a benchmark"),
        ({"workload": None}, "not the result of a benchmark"),
    ],
)
def test_what_does_not_match_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    paths = [_write(tmp_path / "a.json"), _write(tmp_path / "b.json", **changes)]
    with pytest.raises(BadInputError, match=said):
        compare_files(paths)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    good = _write(tmp_path / "a.json")
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("text.json", "list.json", "bytes.json", "missing.json"):
        with pytest.raises(BadInputError):
            compare_files([good, str(tmp_path / name)])
    with pytest.raises(BadInputError, match="two files"):
        compare_files([good])


def test_the_picture(tmp_path: Path) -> None:
    slower = [{"name": "infer batch 1", "images_per_second": 4.0, "p50_seconds": 0.4}]
    paths = [_write(tmp_path / "a.json"), _write(tmp_path / "b.json", entries=slower)]
    draw_comparison(compare_files(paths), tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as picture:
        assert picture.width > 600
        assert len(set(picture.convert("RGB").resize((60, 20)).get_flattened_data())) > 10
