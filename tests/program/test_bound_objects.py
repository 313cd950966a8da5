"""Which values of a model stand in the way of a recording."""

import torch
from torch import Tensor, nn

from drivetrain.models.module_values import note_moving
from drivetrain.program.bound_objects import values_elsewhere


class _Counting(nn.Module):
    def __init__(self, *, as_buffer: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        if as_buffer:
            self.register_buffer("passes", torch.zeros(()))
        else:
            self.passes = torch.zeros(())

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes = self.passes + 1
        outputs: Tensor = self.layer(inputs) / self.passes
        return outputs


def test_a_plain_tensor_that_stays_on_the_cpu_is_named() -> None:
    # The meta device stands in for an accelerator.
    elsewhere = torch.device("meta")
    plain = _Counting(as_buffer=False).to(elsewhere)
    note_moving(plain, ["passes"])
    assert values_elsewhere(plain, elsewhere) == ["passes"]


def test_a_buffer_moves_with_the_model() -> None:
    elsewhere = torch.device("meta")
    buffered = _Counting(as_buffer=True).to(elsewhere)
    note_moving(buffered, ["passes"])
    assert values_elsewhere(buffered, elsewhere) == []


def test_a_value_that_no_pass_changes_is_no_obstacle() -> None:
    still = _Counting(as_buffer=False).to(torch.device("meta"))
    note_moving(still, [])
    assert values_elsewhere(still, torch.device("meta")) == []
