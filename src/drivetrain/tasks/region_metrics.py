"""Scores how well whole objects are separated: foreground-restricted Rand and information scores."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.masks.masked_images import find_objects

__all__ = ["RegionScores", "partition_scores", "region_scores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionScores:
    """V_Rand and V_Info, both 1 for identical objects; None if the truth contains no object."""

    v_rand: float | None
    v_info: float | None


def region_scores(
    predicted: NDArray[np.uint8], truth: NDArray[np.uint8], *, background: int = 0
) -> RegionScores:
    """Scores a predicted class map against the true one, after border thinning.

    Objects are the 4-connected components of each class except `background` (the membrane). The most likely
    class counts, so with two classes the threshold is 0.5; no other threshold is searched. Predicted objects
    grow by a watershed until they touch, so the width of a predicted border does not matter. Pixels that are
    background in the truth are ignored.
    """
    # Imported here and below because these libraries load slowly and most runs do not need them.
    from scipy.ndimage import distance_transform_edt
    from skimage.segmentation import watershed

    objects = find_objects(predicted, background=background)
    if objects.any():
        objects = watershed(distance_transform_edt(objects == 0), objects)  # type: ignore[no-untyped-call]
    return partition_scores(objects, find_objects(truth, background=background))


def partition_scores(predicted: NDArray[np.int64], truth: NDArray[np.int64]) -> RegionScores:
    """V_Rand and V_Info over the pixels where the truth is not 0, with equal weight for precision and recall.

    Let p be the shares of pixels by true and predicted object, and t and s the shares by true or by predicted
    object alone. V_Rand is sum p^2 / (sum s^2 / 2 + sum t^2 / 2), V_Info is I(S; T) / (H(S) / 2 + H(T) / 2).
    """
    from skimage.metrics import contingency_table

    if not truth.any():
        return RegionScores(v_rand=None, v_info=None)
    shares = contingency_table(truth, predicted, ignore_labels=[0], normalize=True)  # type: ignore[no-untyped-call]
    joint = np.asarray(shares.data, dtype=np.float64)
    of_truth, of_predicted = (np.asarray(shares.sum(axis=axis)).ravel() for axis in (1, 0))
    v_rand = (joint**2).sum() / (0.5 * (of_predicted**2).sum() + 0.5 * (of_truth**2).sum())
    entropies = _entropy(of_truth) + _entropy(of_predicted)
    # One true and one predicted object: they are identical, but both entropies are 0.
    v_info = max(0.0, 2 * (entropies - _entropy(joint)) / entropies) if entropies > 0 else 1.0
    return RegionScores(v_rand=float(v_rand), v_info=float(v_info))


def _entropy(shares: NDArray[np.float64]) -> float:
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())
