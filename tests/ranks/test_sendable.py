"""What can be sent to other processes, and what is refused in a sentence."""

import io
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from drivetrain.core.errors import BadInputError
from drivetrain.ranks.sendable import ByValue, require_sendable


@pytest.mark.parametrize(
    "parametrised",
    [parametrizations.spectral_norm, parametrizations.weight_norm, parametrizations.orthogonal],
)
def test_parametrised_modules_travel(parametrised: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Sequential(parametrised(nn.Linear(6, 4)), nn.ReLU(), parametrised(nn.Linear(4, 3))).eval()
    require_sendable(model, what="The model")
    sent = io.BytesIO()
    ForkingPickler(sent).dump(model)
    arrived = ForkingPickler.loads(sent.getvalue())
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    assert list(arrived.state_dict()) == list(model.state_dict())
    assert parametrize.is_parametrized(arrived[0], "weight")
    assert torch.equal(arrived(inputs), model(inputs))


def test_what_cannot_travel_is_said() -> None:
    class Local(nn.Linear):
        """Nobody else can import it."""

    with pytest.raises(BadInputError, match=r"^The model cannot be sent to other processes \(.*Local.*\); "):
        require_sendable(Local(1, 1), what="The model")
    with pytest.raises(BadInputError, match=r"^The data set cannot be sent to other processes \("):
        require_sendable(lambda: None, what="The data set")


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
