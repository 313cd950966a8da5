"""The suggestion names what took the time."""

import json
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from torch.utils.data import Dataset

import drivetrain
from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.loop import clocks as pace
from drivetrain.run.loop.clocks import pace_updates
from drivetrain.run.loop.loop import RunLoop
from drivetrain.run.reporting.replica_efficiency import ReplicaTimes
from drivetrain.run.summary.part_words import PART_WORDS
from drivetrain.run.summary.time_spent import data_bound_of, suggest
from tests.slow_motion import SlowMotion

RECIPE = resolve_recipe(overrides={"dataset": "digits"}).recipe


def test_a_processor_that_others_use_is_named_unless_a_compiler_kept_it_idle() -> None:
    steps = {"step": 9.0, "data": 0.1, "other": 0.0}
    assert "something else is using it" in suggest(steps, recipe=RECIPE, processor_share=0.3)
    compiled = {**steps, "step": 1.0, "compilation": 30.0}
    assert "goes to compilation" in suggest(compiled, recipe=RECIPE, processor_share=0.3)
    assert "the training step itself" in suggest(steps, recipe=RECIPE, processor_share=0.95)


PARTS = (
    *("start-up", "data", "transfer", "validation", "checkpoint", "logging", "pictures"),
    *("probing", "compilation", "other"),
)


@pytest.mark.parametrize("largest", PARTS)
def test_the_largest_share_decides(largest: str) -> None:
    spent = {"step": 27.0, **dict.fromkeys(PARTS, 1.0), largest: 65.0}
    said = suggest(spent, recipe=RECIPE, processor_share=0.3)
    assert said.startswith(f"64% of the time goes to {PART_WORDS.get(largest, largest)}: ")
    assert "faster device" not in said


def test_a_large_part_beside_a_larger_step_is_named_with_it() -> None:
    said = suggest({"step": 60.0, "validation": 35.0, "other": 5.0}, recipe=RECIPE)
    assert said.startswith("60% of the time is the training step itself, 35% goes to validation: ")
    small = suggest({"step": 90.0, "validation": 5.0, "other": 5.0}, recipe=RECIPE)
    assert small == "90% of the time is the training step itself; only a faster device helps."


class SlowSamples(Dataset[tuple[np.ndarray, int]]):
    """Takes its time for every sample."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        time.sleep(self.seconds)
        return np.full((8, 8, 3), index, dtype=np.uint8), index % 2


@pytest.mark.parametrize("seconds", [0.03, 0.0])
def test_a_slow_loader_is_named_with_its_speed(tmp_path: Path, seconds: float) -> None:
    options: dict[str, Any] = {"model": "toy_model", "image_size": 32, "micro_batch_size": 4}
    drivetrain.train(
        data=SlowSamples(seconds),
        data_placement="stream",
        num_workers=0,
        num_epochs=3,
        validation=False,
        checkpoints=False,
        device="cpu",
        output_dir=str(tmp_path / "run"),
        quiet=True,
        **options,
    )
    summary = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    if not seconds:
        assert summary.get("data_bound", {}).get("loader_images_per_second", math.inf) > 200
        return
    found = summary["data_bound"]
    assert 10 < found["loader_images_per_second"] < 1 / seconds
    assert found["device_images_per_second"] > found["loader_images_per_second"]


def _loop(data_s: float, *, fastest_s: float = math.inf, workers: int | None = None) -> RunLoop:
    """1000 samples in 10 s, in updates of 10."""
    feed = object.__new__(StreamFeed)
    program = SimpleNamespace(feed=feed, order=SimpleNamespace(global_batch=10))
    recipe = RECIPE.model_copy(update={"num_workers": workers})
    loop = SimpleNamespace(
        context=SimpleNamespace(program=program, recipe=recipe),
        replica_times=[ReplicaTimes(execution_s=10.0, data_s=share) for share in (data_s, 0.0)],
        times=SimpleNamespace(timed_samples=1000, fastest_update_s=fastest_s),
    )
    return cast(RunLoop, loop)


def test_what_the_device_could_do() -> None:
    assert data_bound_of(_loop(0.9)) is None
    found = data_bound_of(_loop(5.0))
    assert found is not None
    assert found.to_json() == {"loader_images_per_second": 100.0, "device_images_per_second": 200.0}
    assert "the loader delivers 100 images/s and the device could train 200;" in found.sentence()
    assert found.sentence().endswith(
        "try more --num-workers; `drivetrain bench data` shows what takes the loader's time."
    )
    by_itself = data_bound_of(_loop(5.0, workers=0, fastest_s=0.01))
    assert by_itself is not None
    assert by_itself.remedy == "try --num-workers 2, which load beside the training"
    assert by_itself.to_json() == {"loader_images_per_second": 200.0, "device_images_per_second": 1000.0}
    assert data_bound_of(_loop(5.0, fastest_s=0.2)) is None


class _Program:
    """An accelerator's program whose first two updates are slow, and which waits for data in all."""

    def __init__(self, *, streams: bool) -> None:
        self.device = SimpleNamespace(is_cpu=False, synchronise=self._synchronise)
        self.feed = object.__new__(StreamFeed) if streams else object()
        self.updates: list[int] = []
        self.synchronised = 0
        self.time = SlowMotion()
        if isinstance(self.feed, StreamFeed):
            self.feed.data_seconds = 0.0

    def _synchronise(self) -> None:
        self.synchronised += 1

    def execute(self, first: int, last: int, *, goes_on: Any) -> int:
        assert last == first + 1
        self.updates.append(first)
        assert isinstance(self.feed, StreamFeed)
        self.time.sleep(5.0)
        self.feed.data_seconds += 4.0
        self.time.sleep(3.0 if len(self.updates) < 3 else 0.0)
        goes_on(last)
        return last


def test_the_first_updates_are_timed_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    program = _Program(streams=True)
    monkeypatch.setattr(pace, "time", program.time)
    seen: list[int] = []

    def goes_on(update: int) -> bool:
        seen.append(update)
        return True

    reached, fastest_s = pace_updates(
        cast(TrainingProgram, program),
        3,
        100,
        goes_on=goes_on,
        stops=lambda: False,
    )
    assert reached == 3 + pace._PACED_UPDATES
    assert program.updates == list(range(3, reached))
    assert seen == list(range(4, reached + 1))
    assert fastest_s == 1.0


@pytest.mark.parametrize(("streams", "stops", "last"), [(False, False, 9), (True, True, 9), (True, False, 3)])
def test_nothing_is_timed_where_nobody_asks(streams: bool, stops: bool, last: int) -> None:
    program = _Program(streams=streams)
    found = pace_updates(cast(TrainingProgram, program), 3, last, goes_on=lambda _: True, stops=lambda: stops)
    assert found == (3, math.inf)
    assert program.updates == []
