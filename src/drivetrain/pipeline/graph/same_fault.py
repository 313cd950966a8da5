"""Finds the other modules of a model that cannot be traced for the same reason as one that failed.

A network may have hundreds of modules of one kind, such as a batch norm that branches on its input. Finding
them one by one would trace the whole model again for each of them.
"""

import traceback
from collections.abc import Set

from torch import nn

from drivetrain.pipeline.graph.tracer import LayerTracer, user_line

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
    before = set(vars(module))
    try:
        LayerTracer(whole=frozenset(whole - {module})).record(module)
    except Exception as own:
        is_at_fault = not getattr(own, "module_path", "")
        return is_at_fault and type(own) is type(error) and _line(own) == _line(error)
    finally:
        # torch.fx stores the constants of a model that it traces as attributes.
        for name in set(vars(module)) - before:
            del vars(module)[name]
    return False


def _line(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return user_line([(frame.filename, frame.lineno or 0) for frame in frames])
