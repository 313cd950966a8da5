import io
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from drivetrain.core.errors import BadInputError
from drivetrain.ranks.sendable import require_sendable


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
