"""What counter-based dropout saves: nothing as large as an activation is kept for the backward pass."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws import dropout
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.models.create import create_model

SAMPLES = 2
KEY_BYTES = 8 * SAMPLES


def bytes_kept(compute: Callable[[], Tensor]) -> int:
    """Bytes of all memory that autograd keeps of a computation; what is kept twice counts once."""
    kept: dict[int, int] = {}
    alive: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        compute()
    return sum(kept.values())


def counter_based(model: nn.Module) -> nn.Module:
    """A copy of a model as it is trained."""
    copy = deepcopy(model)
    context = UpdateContext(torch.device("cpu"))
    context.slots = torch.arange(SAMPLES)
    assert install_counter_dropout(copy, seed=0, context=context) == 1
    return copy


def bottleneck(drop: nn.Module) -> nn.Module:
    """The deepest level of a U-Net of 64 channels: 28 x 28 pixels, and the up-convolution after it."""
    layers = (nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), drop, nn.ConvTranspose2d(64, 32, 2, stride=2))
    return nn.Sequential(*layers)


class MaskKeeper(nn.Module):
    """A dropout that multiplies by a mask of its own, one byte per element."""

    def forward(self, inputs: Tensor) -> Tensor:
        mask = torch.empty_like(inputs, dtype=torch.bool).bernoulli_(0.5)
        return torch.where(mask, inputs, 0.0)


def features() -> Tensor:
    return torch.randn(SAMPLES, 32, 28, 28, generator=torch.Generator().manual_seed(0))


def test_a_bottleneck_keeps_less_by_the_whole_mask() -> None:
    inputs, elements = features(), SAMPLES * 64 * 28 * 28
    plain = bottleneck(nn.Dropout(0.5))
    counted = counter_based(plain)
    without = bytes_kept(lambda: bottleneck(nn.Identity())(inputs))
    saved = bytes_kept(lambda: plain(inputs)) - bytes_kept(lambda: counted(inputs))
    # On a CPU torch's mask is as large as the activation.
    assert saved == 4 * elements - KEY_BYTES
    # What stays beyond a bottleneck without dropout is the dropped activation, the input of what follows.
    assert bytes_kept(lambda: counted(inputs)) == without + 4 * elements + KEY_BYTES


def test_a_mask_of_one_byte_per_element_would_be_seen() -> None:
    inputs, elements = features(), SAMPLES * 64 * 28 * 28
    counted = counter_based(bottleneck(nn.Dropout(0.5)))
    keeper = bottleneck(MaskKeeper())
    assert bytes_kept(lambda: keeper(inputs)) - bytes_kept(lambda: counted(inputs)) == elements - KEY_BYTES


def test_a_unet_keeps_less_by_the_mask_of_its_bottleneck() -> None:
    images = torch.randn(SAMPLES, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    plain = create_model("unet_same", width=4, depth=2, dropout=0.5).train()
    counted = counter_based(plain)
    saved = bytes_kept(lambda: plain(images)) - bytes_kept(lambda: counted(images))
    assert saved == 4 * SAMPLES * 16 * 16 * 16 - KEY_BYTES


def test_nothing_is_saved_where_nothing_is_dropped() -> None:
    images = torch.randn(SAMPLES, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    plain = create_model("unet_same", width=4, depth=2, dropout=0.5).eval()
    counted = counter_based(plain)
    assert bytes_kept(lambda: plain(images)) == bytes_kept(lambda: counted(images))


@pytest.mark.parametrize("is_told", [True, False])
def test_a_compiler_keeps_no_mask_either(is_told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_told:
        monkeypatch.setattr(dropout, "_drop_compiled", dropout._Drop.apply)
    inputs, elements = features(), SAMPLES * 64 * 28 * 28
    kept = [
        _bytes_kept_compiled(model, inputs)
        for model in (bottleneck(nn.Identity()), counter_based(bottleneck(nn.Dropout(0.5))))
    ]
    more = kept[1] - kept[0]
    # Left to itself it keeps a byte per element.
    assert more < 10 * KEY_BYTES if is_told else more >= elements


def _bytes_kept_compiled(model: nn.Module, inputs: Tensor) -> int:
    torch._dynamo.reset()
    made = torch.compile(model, dynamic=False, fullgraph=True)(inputs).grad_fn
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in made.saved_tensors
    }
    return sum(storage.nbytes() for storage in storages.values())
