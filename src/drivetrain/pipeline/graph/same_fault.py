"""Finds the other modules of a model that cannot be traced for the same reason as one that failed.

A network may have hundreds of modules of one kind, such as a batch norm that branches on its input. Finding
them one by one would trace the whole model again for each of them.
"""

import traceback
from collections.abc import Set

from torch import nn

from drivetrain.models.modules import in_mode
from drivetrain.pipeline.graph.tracer import LayerTracer, NoStepsError, user_line

__all__ = ["modules_with_same_fault"]


def modules_with_same_fault(
    model: nn.Module, failed: nn.Module, error: Exception, *, whole: Set[nn.Module]
) -> set[nn.Module]:
    """The modules of the class of `failed` that fail at the same line when each is traced alone."""
    alike = [
        module
        for module in model.modules()
        if type(module) is type(failed) and module is not failed and module not in whole
    ]
    return {module for module in alike if _fails_alike(module, error, whole=whole)}


def _fails_alike(module: nn.Module, error: Exception, *, whole: Set[nn.Module]) -> bool:
    tried = whole - {module}
    if isinstance(error, NoStepsError):
        return any(_takes_no_step(module, whole=tried, training=mode) for mode in (True, False))
    faults = (_fault(module, whole=tried, training=mode) for mode in (True, False))
    return any(type(own) is type(error) and _line(own) == _line(error) for own in faults if own is not None)


def _takes_no_step(module: nn.Module, *, whole: Set[nn.Module], training: bool) -> bool:
    tracer = LayerTracer(whole=whole)
    if _traced(tracer, module, training=training) is not None:
        return False
    return all(kind in ("placeholder", "output") for kind, *_ in tracer.records["", 0].steps)


def _fault(module: nn.Module, *, whole: Set[nn.Module], training: bool) -> Exception | None:
    """Why the module's own code cannot be traced; None if it can, or if a module inside is at fault."""
    error = _traced(LayerTracer(whole=whole), module, training=training)
    is_inside = bool(getattr(error, "module_path", ""))
    return None if is_inside else error


def _traced(tracer: LayerTracer, module: nn.Module, *, training: bool) -> Exception | None:
    """Traces a module alone; returns the error."""
    before = set(vars(module))
    try:
        with in_mode(module, training=training):
            tracer.record(module)
    except Exception as error:
        return error
    finally:
        # torch.fx stores the constants of a model that it traces as attributes.
        for name in set(vars(module)) - before:
            del vars(module)[name]
    return None


def _line(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return user_line([(frame.filename, frame.lineno or 0) for frame in frames])
