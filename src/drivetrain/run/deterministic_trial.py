"""Before the first update of a run with --deterministic: one update on trial names what has other bits."""

from drivetrain.devices.determinism import noting_operations
from drivetrain.program.training_program import TrainingProgram
from drivetrain.run.compiling.compile_timer import leaving_no_trace

__all__ = ["undeterministic_operations"]


def undeterministic_operations(program: TrainingProgram, *, first: int) -> list[str]:
    """A sentence for each operation of update `first` without a deterministic algorithm; a collective.

    The update runs uncompiled, because a compiled one does not call the layers one by one. Its effects are
    undone.
    """
    compiles = program.compiled.is_on
    if compiles:
        program.compiled.switch(False)
    with leaving_no_trace(program), noting_operations(program.model) as operations:
        program.model.train()
        program.run_update(first)
        program.device.synchronise()
    if compiles:
        program.compiled.switch(True)
    if program.capture is not None:
        program.capture.forget()
    own = [operation.sentence for operation in operations]
    everybodys: list[list[str]] = program.group.gather(own)
    return list(dict.fromkeys(sentence for part in everybodys for sentence in part))
