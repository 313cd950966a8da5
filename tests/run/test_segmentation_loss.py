"""Every option of a segmentation's loss, as the first update of a run counts it, from its definition."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from drivetrain.data.splits import open_data
from drivetrain.data.training_tiles import masked_of
from drivetrain.recipe.load import resolve_recipe
from tests.data.masks.border_formula import by_hand as border_by_hand
from tests.run.segments import SEGMENT, losses_of, segment, write_shapes
from tests.tasks.dense_cases import cross_entropy_by_hand, dice_by_hand

pytestmark = pytest.mark.usefixtures("no_pictures")

# The rate 0 leaves the weights as they were when the first loss was computed.
FIRST_UPDATE: dict[str, Any] = {
    "dataset_size": 4,
    "shuffle": False,
    "augment": False,
    "learning_rate": 0,
    "max_updates": 1,
    "validation": False,
    "checkpoints": False,
}


def _class_weights(given: str, masks: list[NDArray[np.uint8]], *, num_classes: int) -> NDArray[np.float64]:
    """Weights whose mean over all training pixels is 1; balanced ones are inverse to the frequency."""
    counts = np.bincount(np.concatenate([mask.ravel() for mask in masks]), minlength=num_classes)
    weights = 1 / counts if given == "balanced" else np.array([float(word) for word in given.split()])
    return np.asarray(weights * counts.sum() / (weights * counts).sum())


def _loss_by_hand(
    logits: NDArray[np.float64],
    mask: NDArray[np.uint8],
    weights: NDArray[np.float64],
    options: dict[str, Any],
) -> float:
    """Weighted cross-entropy, its weights normalised within the sample, plus 1 - soft Dice."""
    costs = cross_entropy_by_hand(logits, mask, sigmoid=options.get("loss") == "sigmoid")
    pixels = weights[mask]
    if "border_weight" in options:
        codes = np.rint(border_by_hand(mask, options.get("border_sigma", 5.0)))
        pixels = pixels + options["border_weight"] * codes / 255
    cross_entropy = (costs * pixels).sum() / pixels.sum()
    dice = dice_by_hand(logits, mask).mean()
    return float(
        options.get("cross_entropy_weight", 1.0) * cross_entropy
        + options.get("dice_weight", 1.0) * (1 - dice)
    )


def _first_losses(path: Path, options: dict[str, Any]) -> tuple[float, float]:
    """The loss that a run recorded for its first update, and the same by hand."""
    result = segment(path, **{**FIRST_UPDATE, **options})
    data = open_data(resolve_recipe(overrides={**SEGMENT, **FIRST_UPDATE, **options}).recipe)
    masked = masked_of(data.train)
    pairs = [masked.whole(index) for index in range(4)]
    masks = [mask[..., 0] for _, mask in pairs]
    given = options.get("class_weights", "1 " * data.spec.num_classes)
    weights = _class_weights(given, masks, num_classes=data.spec.num_classes)
    losses = []
    for (image, _), mask in zip(pairs, masks, strict=True):
        pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None] / 127.5 - 1
        with torch.inference_mode():
            logits = result.model(pixels)[0].double().numpy()
        losses.append(_loss_by_hand(logits, mask, weights, options))
    return float(losses_of(path)[0]), float(np.mean(losses))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "sigmoid"},
        {"cross_entropy_weight": 0.3, "dice_weight": 2.0},
        {"cross_entropy_weight": 0.0},
        {"dice_weight": 0.0},
        {"class_weights": "1 5"},
        {"class_weights": "balanced"},
        {"border_weight": 10.0, "border_sigma": 3.0},
        {"border_weight": 10.0, "class_weights": "3 1", "loss": "sigmoid", "dice_weight": 0.5},
    ],
)
def test_the_first_loss_is_the_one_by_hand(tmp_path: Path, options: dict[str, Any]) -> None:
    found, expected = _first_losses(tmp_path / "run", options)
    assert found == pytest.approx(expected, rel=1e-5)
    if options:
        plain, _ = _first_losses(tmp_path / "plain", {})
        assert abs(found - plain) > 1e-4


@pytest.mark.parametrize(
    "options", [{}, {"class_weights": "1 4 9"}, {"class_weights": "balanced", "border_weight": 4.0}]
)
def test_of_three_classes_too(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = write_shapes(tmp_path / "shapes", sizes=((32, 36),) * 4)
    own = {
        "dataset": "mask-folder",
        "auto": "off",
        "data_dir": str(folder),
        "dataset_size": None,
        "image_size": None,
        "validation_fraction": 0,
    }
    found, expected = _first_losses(tmp_path / "run", {**own, **options})
    assert found == pytest.approx(expected, rel=1e-5)


def test_weights_that_fit_no_class_are_refused(tmp_path: Path) -> None:
    from drivetrain.core.errors import BadInputError

    with pytest.raises(BadInputError, match="--class-weights has 3 numbers but there are 2 classes"):
        segment(tmp_path / "run", class_weights="1 2 3")
    assert not (tmp_path / "run").exists()
