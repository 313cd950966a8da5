"""The states in which one process began its updates, and from which every layout begins the same ones.

Rounding grows from update to update at a pace that depends on the processor. So single updates are compared,
each from equal states, and never two trainings.
"""

from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from drivetrain.program.training import TrainingProgram
from drivetrain.state.program_state import ProgramState, collect_state, load_state

__all__ = ["Starts"]

_PARTS = ("model", "optimiser", "averaged", "buffers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """A folder with a file for each update; the one process that leads writes them, all others follow.

    A layout must reach the state before update 0 by itself: it follows from update 1 on.
    """

    folder: str
    leads: bool
    first: int = 1

    def begin(self, program: TrainingProgram, update: int) -> None:
        """Notes the state before an update, or takes it over."""
        path = Path(self.folder) / f"{update}.safetensors"
        if self.leads:
            whole = collect_state(program)
            assert whole is not None, "who leads is alone"
            save_file(_named(whole), path)
        elif update >= self.first:
            load_state(program, _state_of(load_file(path)))


def _named(state: ProgramState) -> dict[str, Tensor]:
    return {
        f"{part}/{name}": value.detach().cpu().contiguous().clone()
        for part in _PARTS
        for name, value in getattr(state, part).items()
    }


def _state_of(tensors: dict[str, Tensor]) -> ProgramState:
    return ProgramState(**{part: _below(tensors, f"{part}/") for part in _PARTS})


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
