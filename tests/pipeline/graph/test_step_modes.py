"""The modes that steps of a trace note, and how they are entered again."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.pipeline.graph.shapes import find_shapes
from drivetrain.pipeline.graph.step_modes import Autocast, StepModes, modes_of, wrapped
from drivetrain.pipeline.graph.trace import trace_model


class _Modes(nn.Module):
    """One step in each kind of mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)
        self.made_before = torch.autocast("cpu", enabled=False)

    def forward(self, images: Tensor) -> Tensor:
        plain = self.conv(images)
        with torch.no_grad():
            constant = torch.neg(plain)
            with torch.enable_grad():
                again = torch.abs(plain)
        with torch.inference_mode():
            seen = torch.sin(plain)
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast(plain.device.type, enabled=False):
            cast = torch.matmul(plain, plain)
        with self.made_before:
            wide = torch.exp(plain)
        return constant + again + seen + cast + wide


def _noted() -> dict[str, StepModes | None]:
    return {node.name: modes_of(node) for node in trace_model(_Modes()).graph.nodes}


def test_steps_note_what_the_code_sets() -> None:
    half = Autocast("cpu", torch.bfloat16, True, None)
    noted = _noted()
    assert {name: modes for name, modes in noted.items() if modes is not None} == {
        "neg": StepModes(no_grad=True),
        "sin": StepModes(inference=True),
        "matmul": StepModes(autocasts=(half, Autocast(None, None, False, None))),
        "exp": StepModes(autocasts=(Autocast("cpu", torch.bfloat16, False, True),)),
    }


@pytest.mark.parametrize(
    "around", [torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)]
)
def test_modes_around_a_trace_are_not_the_models(around: Any) -> None:
    with around:
        assert _noted() == _noted()
        inside = _noted()
    assert inside == _noted()


def _seen(value: Tensor) -> tuple[bool, bool, bool, torch.dtype]:
    cpu = "cpu"
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled(cpu),
        torch.get_autocast_dtype(cpu),
    )


def test_modes_are_entered_around_a_step_alone() -> None:
    value = torch.ones(2)
    default = torch.get_autocast_dtype("cpu")
    half = Autocast("cpu", torch.float16, True, None)
    cases = {
        StepModes(no_grad=True): (False, False, False, default),
        StepModes(inference=True): (False, True, False, default),
        StepModes(autocasts=(half,)): (True, False, True, torch.float16),
        StepModes(True, False, (half, Autocast(None, None, False, None))): (
            False,
            False,
            False,
            torch.float16,
        ),
    }
    for modes, expected in cases.items():
        assert wrapped(_seen, modes)(value) == expected
        with modes.entered(value):
            assert _seen(value) == expected
        assert _seen(value) == (True, False, False, default)


def test_no_grad_around_stays() -> None:
    with torch.no_grad():
        half = StepModes(autocasts=(Autocast("cpu", torch.float16, True, None),))
        assert not wrapped(_seen, half)(torch.ones(1))[0]


def test_sizes_and_types_are_those_of_the_modes() -> None:
    class Half(_Modes):
        def forward(self, images: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                # Without autocast a float32 layer would refuse 16-bit images.
                features = self.conv(images.bfloat16())
            result: Tensor = features.float()
            return result

    values = find_shapes(trace_model(Half()), image_shape=(2, 1, 4, 4)).values
    assert (values["conv"].dtype, values["float_1"].dtype) == (torch.bfloat16, torch.float32)
