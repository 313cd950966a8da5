"""The progress of a run from its lines, of which most are never decoded."""

import json
from typing import Any

import pytest

from drivetrain.report.live import progress as module
from drivetrain.report.live.progress import Progress
from drivetrain.store.metrics_file import event_of


def _lines(*entries: dict[str, Any]) -> list[bytes]:
    return [json.dumps(entry).encode() for entry in entries]


def _train(update: int) -> dict[str, Any]:
    return {"event": "train", "update": update, "loss": 1 / update, "elapsed_seconds": update / 2}


def test_the_newest_and_the_best_values() -> None:
    progress = Progress()
    progress.add(
        _lines(
            _train(1),
            {"event": "validation", "update": 1, "loss": 0.5, "accuracy": 0.9},
            _train(2),
            {"event": "validation", "update": 2, "loss": 0.7, "accuracy": 0.8},
        )
    )
    assert progress.metric(None) == "accuracy"
    assert (progress.last("accuracy"), progress.best("accuracy")) == (0.8, 0.9)
    assert (progress.last("loss"), progress.best("loss")) == (0.7, 0.5)
    assert progress.metric("loss") == "loss"
    assert (progress.metric("iou"), progress.best(None)) == (None, None)
    assert (progress.update, progress.elapsed_s, progress.loss) == (2, 1.0, 0.5)
    assert progress.points == [(1, 1.0), (2, 0.5)]
    assert not progress.has_summary
    progress.add(_lines({"event": "summary", "update": 2, "time_to_train_seconds": 9.5}))
    assert (progress.has_summary, progress.elapsed_s) == (True, 9.5)


def test_a_long_run_is_thinned_and_its_end_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def counted(line: str) -> dict[str, Any] | None:
        decoded.append(line)
        return event_of(line)

    monkeypatch.setattr(module, "event_of", counted)
    progress = Progress()
    progress.add(_lines(*map(_train, range(1, 10_001))))
    assert len(decoded) < 150
    assert (progress.update, progress.loss) == (10_000, 1 / 10_000)
    assert progress.points[0] == (1, 1.0)
    assert progress.points[-1] == (10_000, 1 / 10_000)
    assert len(progress.points) <= 96
    for update in range(10_001, 10_400):
        progress.add(_lines(_train(update)))
        assert progress.points[-1][0] == update
    assert len(progress.points) <= 96


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"event": 3}',
        b"[" * 100_000,
        b'{"event": "train", "update": "x"}',
        b'{"event": "train", "update": 1, "loss": ' + b"9" * 5000 + b"}",
        b'{"event": "train", "update": 1, "loss": 1' + b"0" * 400 + b"}",
        b'{"event": "train", "update": 1, "loss": NaN, "elapsed_seconds": "long"}',
        b'{"event": "validation", "update": 1, "accuracy": Infinity}',
    ],
)
def test_what_is_no_event_or_no_number_is_left_out(line: bytes) -> None:
    progress = Progress()
    progress.add([line, *_lines(_train(2))])
    assert (progress.update, progress.loss, progress.points) == (2, 0.5, [(2, 0.5)])
    assert progress.last("accuracy") is None
