"""The pictures of a run are replaced as a whole."""

from pathlib import Path

from drivetrain.core.files import read_json
from drivetrain.store.examples import EXAMPLES_RECORD, ShownSample, write_sample_examples


def test_new_pictures_replace_all_older_ones(tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    for names in (("0.png", "1.png"), ("0.jpg",)):
        samples = [ShownSample(name=name, file=name, truth=0, predicted=1) for name in names]
        pictures = dict.fromkeys(names, b"picture")
        write_sample_examples(folder, samples=samples, cells={"0,1": [0]}, worst=[0], pictures=pictures)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["0.jpg", "examples", EXAMPLES_RECORD]
    assert read_json(folder / EXAMPLES_RECORD) == {
        "cells": {"0,1": [0]},
        "worst": [0],
        "samples": [{"name": "0.jpg", "file": "0.jpg", "truth": 0, "predicted": 1}],
    }
