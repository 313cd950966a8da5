"""What the list says of runs, and that changes are told to those who wait."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.report.live import catalogue as module
from drivetrain.report.live.catalogue import Catalogue
from drivetrain.report.live.rows import Row
from drivetrain.store.heartbeat import write_heartbeat
from drivetrain.store.lock import hold_lock
from tests.report.live.served import add_event, write_run
from tests.store.written_beats import BEAT


@pytest.fixture(autouse=True)
def searched_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEARCH_EVERY_S", 0.0)


def _row(catalogue: Catalogue, name: str) -> Row:
    catalogue.poll()
    return {row["id"]: row for row in catalogue.rows()}[name]


def test_the_row_of_a_run_follows_its_events(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    catalogue = Catalogue(tmp_path)
    first = _row(catalogue, "a")
    assert (first["state"], first["model"], first["data"]) == ("stopped", "toy_model", "digits")
    assert (first["done"], first["total"], first["loss"]) == (2, 10, 0.5)
    assert (first["metric"], first["best"]) == (None, None)
    add_event(run, "validation", update=4, accuracy=0.75, loss=1.0)
    second = _row(catalogue, "a")
    assert (second["done"], second["metric"], second["best"]) == (4, "accuracy", 0.75)
    assert second["version"] != first["version"]
    assert _row(catalogue, "a") == second
    add_event(run, "summary", update=4)
    assert _row(catalogue, "a")["state"] == "finished"


def test_a_run_that_continues_from_a_checkpoint_is_read_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", updates=range(1, 9))
    catalogue = Catalogue(tmp_path)
    assert _row(catalogue, "a")["done"] == 8
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "fewer").write_text("".join(lines[:3]))
    (run / "fewer").replace(run / "metrics.jsonl")
    assert _row(catalogue, "a")["done"] == 3


def test_a_heartbeat_is_ahead_of_the_events(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    beat = replace(BEAT, host="elsewhere", update=7, images_per_second=50.0)
    write_heartbeat(run, beat)
    catalogue = Catalogue(tmp_path)
    row = _row(catalogue, "a")
    assert (row["state"], row["done"], row["images_per_second"]) == ("running", 7, 50.0)
    write_heartbeat(run, replace(beat, state="stopped"))
    row = _row(catalogue, "a")
    assert (row["state"], row["done"], row["images_per_second"]) == ("stopped", 2, None)


def test_a_cross_validation_counts_its_folds(tmp_path: Path) -> None:
    job = tmp_path / "cells"
    for fold in (0, 1):
        write_run(job / f"fold-{fold}")
        add_event(job / f"fold-{fold}", "summary", update=2)
    record: dict[str, Any] = {"status": "stopped", "folds": 5}
    (job / "crossval.json").write_text(json.dumps(record))
    catalogue = Catalogue(tmp_path)
    row = _row(catalogue, "cells")
    assert (row["state"], row["done"], row["total"], row["unit"]) == ("stopped", 2, 5, "folds")
    assert (row["model"], row["data"], row["best"]) == ("toy_model", "digits", None)
    assert {row["id"] for row in catalogue.rows()} == {"cells", "cells%2Ffold-0", "cells%2Ffold-1"}
    with hold_lock(job):
        # Where the kernel does not list its locks, only heartbeats tell.
        is_listed = Path("/proc/locks").exists()
        assert _row(catalogue, "cells")["state"] == ("running" if is_listed else "stopped")
    means = {which: {"dice": {"mean": value}} for which, value in (("last", 0.5), ("best", 0.75))}
    done = {**record, "status": "finished", "statistics": {"metric": "dice", **means}}
    (job / "crossval.json").write_text(json.dumps(done))
    row = _row(catalogue, "cells")
    assert (row["state"], row["metric"]) == ("finished", "mean soft Dice (class mean)")
    assert (row["last"], row["best"]) == (0.5, 0.75)


@pytest.mark.parametrize(
    "file", ["plan.json", "identity.json", "recipe.yaml", "metrics.jsonl", "crossval.json"]
)
@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00", b"[1]", b'{"folds": {}, "statistics": 3}', b"[" * 10**5]
)
def test_damaged_files_leave_the_other_runs_alone(tmp_path: Path, file: str, content: bytes) -> None:
    write_run(tmp_path / "bad")
    (tmp_path / "bad" / file).write_bytes(content)
    write_run(tmp_path / "good")
    catalogue = Catalogue(tmp_path)
    assert _row(catalogue, "good")["done"] == 2
    assert _row(catalogue, "bad")["id"] == "bad"


def test_new_runs_appear_and_old_ones_go(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    catalogue = Catalogue(tmp_path)
    catalogue.poll()
    before = catalogue.wait(0, timeout_s=0)
    assert ([row["id"] for row in before.rows], before.gone) == (["a"], [])
    assert catalogue.wait(before.number, timeout_s=0).rows == []
    write_run(tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    catalogue.poll()
    after = catalogue.wait(before.number, timeout_s=0)
    assert ([row["id"] for row in after.rows], after.gone) == (["b"], ["a"])
    assert catalogue.path_of("a") is None
    assert catalogue.wait(before.number, only={"c"}, timeout_s=0).rows == []


def test_who_waits_is_woken(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    catalogue = Catalogue(tmp_path)
    threading.Timer(0.05, catalogue.poll).start()
    assert [row["id"] for row in catalogue.wait(0, timeout_s=600).rows] == ["a"]
    threading.Timer(0.05, catalogue.close).start()
    assert catalogue.wait(10**6, timeout_s=600).rows == []


def test_fifty_long_runs_are_read_once(tmp_path: Path) -> None:
    """What is counted is work: no byte is read twice, and most lines are never decoded."""
    write_run(tmp_path / "run-0", updates=range(1, 1001))
    for number in range(1, 50):
        shutil.copytree(tmp_path / "run-0", tmp_path / f"run-{number}")
    catalogue = Catalogue(tmp_path)
    for _ in range(3):
        catalogue.poll()
    read = [run._events.bytes_read for run in catalogue._runs.values()]
    assert read == [(tmp_path / "run-0" / "metrics.jsonl").stat().st_size] * 50


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInputError, match=r"--live nowhere is not a folder; .* --live runs"):
        Catalogue(Path("nowhere"))
