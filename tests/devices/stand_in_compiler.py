"""Compilers that compile nothing, in the place of torch.compile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

__all__ = ["CompilerError", "compile_by"]


class CompilerError(Exception):
    """What the compiler raises, as far as its name and place tell."""

    __module__ = "torch._dynamo.exc"


def compile_by(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any] | None = None
) -> list[Callable[..., Any]]:
    """From now on a compiled function runs by `run(function, *arguments)`, or as it is; returns what was
    compiled so far."""
    compiled: list[Callable[..., Any]] = []

    def pretend(function: Callable[..., Any], *, dynamic: bool, fullgraph: bool) -> Callable[..., Any]:
        assert dynamic is False
        compiled.append(function)

        def call(*arguments: Any, **options: Any) -> Any:
            return function(*arguments, **options) if run is None else run(function, *arguments, **options)

        return call

    monkeypatch.setattr(torch, "compile", pretend)
    return compiled
