"""Batch norms folded where the model then still computes the same: a model of one's own may surprise."""

import torch
from torch import Tensor, nn

from drivetrain.core.factories import describe_failure
from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
from drivetrain.passes.forward import Precision, in_precision

__all__ = ["fold_where_same"]

_TOLERANCES = {torch.float32: 1e-3}
_HALF_TOLERANCE = 5e-2


def fold_where_same(
    model: nn.Module, images: Tensor, *, precision: Precision, is_known: bool
) -> tuple[nn.Module, str | None]:
    """The model without its batch norms, or as it is and why; one that is known is not tried out."""
    try:
        folded = fold_batch_norm(model)
        if not folded.folded:
            return model, None
        if is_known or _agree(model, folded.model, images, precision=precision):
            return folded.model, None
        why = "its output would change"
    except Exception as error:
        why = describe_failure(error)
    return model, f"the model runs with its batch norms, as they cannot be folded: {why}"


@torch.inference_mode()
def _agree(model: nn.Module, folded: nn.Module, images: Tensor, *, precision: Precision) -> bool:
    expected, found = (in_precision(one, precision)(images.clone()).float() for one in (model, folded))
    tolerance = _TOLERANCES.get(precision.compute_dtype, _HALF_TOLERANCE)
    largest = float(expected.abs().max())
    return torch.allclose(found, expected, rtol=0, atol=tolerance * largest, equal_nan=True)
