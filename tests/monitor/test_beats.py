"""Which runs are looked at."""

from dataclasses import replace
from pathlib import Path

from drivetrain.monitor.beats import beats_of, runs_in
from drivetrain.store.heartbeat import write_heartbeat
from tests.monitor.hosts import BEAT, READING, process


def _run(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "recipe.yaml").write_text("")
    write_heartbeat(path, BEAT)
    return path


def test_runs_and_folds_are_found_in_a_folder(tmp_path: Path) -> None:
    found = [_run(tmp_path / name) for name in ("a", "job/fold-0", "job/fold-1")]
    (tmp_path / "notes").mkdir()
    assert runs_in(tmp_path) == found
    assert runs_in(tmp_path / "missing") == []


def test_runs_of_processes_are_added_and_each_counts_once(tmp_path: Path) -> None:
    named, other = _run(tmp_path / "named"), _run(tmp_path / "elsewhere" / "other")
    (tmp_path / "old").mkdir()
    processes = {
        1: replace(process(1), run=named),
        2: replace(process(2), run=other),
        3: replace(process(3), run=tmp_path / "old"),
    }
    reading = replace(READING, processes=processes)
    by_detour = tmp_path / "elsewhere" / ".." / "named"
    assert beats_of([by_detour], reading) == {by_detour: [BEAT], other: [BEAT]}
    assert beats_of([], replace(READING, processes={})) == {}
