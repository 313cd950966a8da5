"""The images of the first micro-batch, without the feed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drivetrain.assembly import training_parts
from drivetrain.assembly.cut_check import CutReport
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.feeds.stream import StreamFeed
from tests.assembly.cut_models import ONE_PROCESS, Small, train_small


def _images(monkeypatch: pytest.MonkeyPatch, path: Path, **options: Any) -> tuple[Tensor, Any]:
    """The images of the comparison, and the inputs of the program."""
    found: list[tuple[Tensor, Any]] = []

    def compare(*_: object, inputs: Any, images: Tensor) -> CutReport:
        first = next(inputs.feed.micro_batches(0)).images
        found.append((images, (type(inputs.feed), first.clone())))
        return CutReport()

    monkeypatch.setattr(training_parts, "compare_cut", compare)
    train_small(path, Small(), **ONE_PROCESS, **options)
    return found[0]


@pytest.mark.parametrize(("placement", "feed"), [("resident", ResidentFeed), ("stream", StreamFeed)])
def test_they_are_those_of_the_feed(
    placement: str, feed: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = {"data_placement": placement, "num_workers": 0} if placement == "stream" else {}
    images, (kind, expected) = _images(monkeypatch, tmp_path / "run", mixup=0.4, **options)
    assert kind is feed
    assert torch.equal(images, expected)
    assert not torch.equal(images, images.flip(0))


def test_noise_stands_in_for_samples_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    images, (_, expected) = _images(monkeypatch, tmp_path / "run")
    assert torch.equal(images, expected)
    monkeypatch.setattr("drivetrain.assembly.training_feed.HostPreparation.for_training", _fails)
    images, (_, expected) = _images(monkeypatch, tmp_path / "other")
    assert images.shape == expected.shape
    assert not torch.equal(images, expected)


def _fails(*_: object, **__: object) -> None:
    raise OSError("not a picture")
