"""A model whose own code cannot be traced."""

from torch import Tensor, nn


class Branching(nn.Module):
    """Branches on the values of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.linear(images.flatten(1))
        return outputs if outputs.sum() > 0 else -outputs


def branching(**_: object) -> nn.Module:
    """The model, whatever it is built for."""
    return Branching()
