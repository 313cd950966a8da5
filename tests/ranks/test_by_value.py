from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from torch import nn

from drivetrain.ranks.by_value import ByValue


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.register_buffer("saved", torch.zeros(3))
        self.register_buffer("unsaved", torch.zeros(3), persistent=False)
        self.plain = torch.zeros(3)
        self.view = self.plain[1:]


def _sent(value: Any) -> Any:
    """A value as a spawned process gets it."""
    return ForkingPickler.loads(ForkingPickler.dumps(value))


@pytest.mark.parametrize("name", ["weight", "saved", "unsaved", "plain"])
def test_no_tensor_of_a_module_is_shared(name: str) -> None:
    model = _Net()
    copies = [_sent(ByValue(model)).value for _ in range(2)]
    with torch.no_grad():
        getattr(copies[0], name).add_(1)
    assert getattr(copies[0], name).tolist() == [1.0] * 3
    assert getattr(copies[1], name).tolist() == getattr(model, name).tolist() == [0.0] * 3
    assert not getattr(model, name).is_shared()


def test_what_belongs_together_stays_together() -> None:
    copy = _sent(ByValue({"model": _Net(), "number": 3})).value
    copy["model"].plain.add_(1)
    assert copy["model"].view.tolist() == [1.0, 1.0]
    assert copy["number"] == 3
