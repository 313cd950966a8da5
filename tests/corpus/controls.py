"""Modules that no layout may get away with: the comparison of the corpus has to notice them."""

from itertools import count

import torch
from torch import Tensor

from tests.corpus.modules import Block, WithBlock

__all__ = ["DrawsByNobody", "KnowsItsMicroBatch"]

_UNSEEDED = count()


class KnowsItsMicroBatch(WithBlock):
    """Computes with the number of samples that came together."""

    def middle(self, features: Tensor) -> Tensor:
        outputs: Tensor = self.block(features) * (1 + 0.01 * len(features))
        return outputs


class _Unseeded(Block):
    def forward(self, features: Tensor) -> Tensor:
        noise = torch.full((features.shape[1],), next(_UNSEEDED) % 7).to(features)
        outputs: Tensor = super().forward(features + 0.1 * noise.view(1, -1, 1, 1))
        return outputs


class DrawsByNobody(WithBlock):
    """Takes numbers from a counter of the process, which depends on all that was computed before."""

    def __init__(self) -> None:
        super().__init__(_Unseeded())
