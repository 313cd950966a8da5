import pytest
import torch
from torch import Tensor, nn

from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.dropout import CounterDropout, dropout_class
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.layers.draws.site import Site

CPU = torch.device("cpu")


def _context(slots: list[int], update: int = 0) -> UpdateContext:
    context = UpdateContext(CPU)
    context.update.fill_(update)
    context.slots = torch.tensor(slots)
    return context


def _layer(original: nn.Module, *, key: int, context: UpdateContext) -> nn.Module:
    kind = dropout_class(type(original))
    assert kind is not None
    original.__class__ = kind
    original.site = Site(key, context)  # type: ignore[assignment]
    return original


def _dropped(slots: list[int], *, update: int = 0, key: int = 1, rate: float = 0.5, size: int = 33) -> Tensor:
    layer = _layer(nn.Dropout(rate), key=key, context=_context(slots, update))
    output: Tensor = layer(torch.ones(len(slots), size))
    return output


def test_cutting_or_permuting_a_batch_does_not_change_a_samples_mask() -> None:
    whole = _dropped([0, 1, 2, 3])
    assert torch.equal(torch.cat([_dropped([0, 1]), _dropped([2, 3])]), whole)
    assert torch.equal(_dropped([3, 1]), whole[[3, 1]])


@pytest.mark.parametrize("change", [{"update": 1}, {"key": 2}])
def test_update_and_layer_change_the_mask(change: dict[str, int]) -> None:
    assert not torch.equal(_dropped([0, 1], **change), _dropped([0, 1]))


def test_samples_have_different_masks() -> None:
    first, second = _dropped([0, 1])
    assert not torch.equal(first, second)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_is_met_and_the_mean_is_kept(rate: float) -> None:
    output = _dropped(list(range(64)), rate=rate, size=4096)
    share_dropped = (output == 0).double().mean().item()
    assert abs(share_dropped - rate) < 0.004
    assert abs(output.double().mean().item() - 1.0) < 0.02


def test_the_backward_pass_uses_the_same_mask() -> None:
    inputs = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    layer = _layer(nn.Dropout(0.5), key=9, context=_context([0, 1, 2, 3]))
    output = layer(inputs)
    output.sum().backward()
    assert inputs.grad is not None
    assert torch.equal(inputs.grad != 0, output != 0)


def test_the_mask_does_not_depend_on_the_memory_format() -> None:
    context = _context([0, 1])
    layer = _layer(nn.Dropout(0.5), key=9, context=context)
    inputs = torch.ones(2, 3, 4, 5)
    first = layer(inputs)
    context.begin_forward(context.slots)
    assert torch.equal(first, layer(inputs.contiguous(memory_format=torch.channels_last)))


def test_whole_channels_are_dropped_together() -> None:
    layer = _layer(nn.Dropout2d(0.5), key=5, context=_context([0, 1]))
    output = layer(torch.ones(2, 32, 4, 4))
    per_channel = output.flatten(2)
    assert torch.equal(per_channel.amax(2), per_channel.amin(2))
    assert 0 < int((per_channel.amax(2) == 0).sum()) < 64


def test_no_mask_is_kept_for_the_backward_pass() -> None:
    layer = _layer(nn.Dropout(0.5), key=9, context=_context([0, 1]))
    saved: list[int] = []

    def count(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        layer(torch.ones(2, 10_000, requires_grad=True))
    assert sum(saved) == 2


def test_eval_mode_and_rate_0_change_nothing() -> None:
    inputs = torch.randn(2, 8)
    layer = _layer(nn.Dropout(0.5), key=1, context=_context([0, 1]))
    assert torch.equal(layer.eval()(inputs), inputs)
    nothing = _layer(nn.Dropout(0.0), key=1, context=_context([0, 1]))
    assert torch.equal(nothing(inputs), inputs)
    everything = _layer(nn.Dropout(1.0), key=1, context=_context([0, 1]))
    assert torch.equal(everything(inputs), torch.zeros(2, 8))


def test_a_layer_used_twice_has_two_masks_and_repeats_them() -> None:
    context = _context([0, 1])
    layer = _layer(nn.Dropout(0.5), key=5, context=context)
    passes = []
    for _ in range(2):
        context.begin_forward(context.slots)
        passes.append([layer(torch.ones(2, 40)), layer(torch.ones(2, 40))])
    assert not torch.equal(passes[0][0], passes[0][1])
    assert torch.equal(passes[0][0], passes[1][0])
    assert torch.equal(passes[0][1], passes[1][1])


def test_samples_that_take_several_rows() -> None:
    layer = _layer(nn.Dropout(0.5), key=5, context=_context([0, 1]))
    rows = layer(torch.ones(6, 8))
    other = _layer(nn.Dropout(0.5), key=5, context=_context([0, 1]))
    assert torch.equal(rows.reshape(2, 24), other(torch.ones(2, 24)))
    assert layer(torch.ones(5, 8)).shape == (5, 8)


def test_all_dropout_layers_of_a_model_are_replaced() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Sequential(nn.Dropout2d(0.2)))
    assert install_counter_dropout(model, seed=0, context=UpdateContext(CPU)) == 2
    assert isinstance(model[1], CounterDropout)
    nested = model[2]
    assert isinstance(nested, nn.Sequential)
    assert isinstance(nested[0], CounterDropout)
    assert nested[0].whole_channels
    assert model[1].site.key != nested[0].site.key
