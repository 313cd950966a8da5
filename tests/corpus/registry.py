"""Registers the modules of the corpus with what is expected of each in a layout."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from torch import nn

__all__ = ["CASES", "Case", "Scope", "idea"]

Scope = Literal["sample", "micro-batch", "call"]
"""What a draw or a statistic belongs to.

sample: a sample's result depends on nothing but the sample. micro-batch: samples that are computed together
share a draw or a statistic, so only layouts of the same micro-batch are comparable. call: a pass changes what
the next one finds, so replicas are not comparable either, and the run has to say so.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One module of the corpus.

    `draws`: it draws random numbers in training, so that torch alone computes something else. `refused`: a
    part of the sentence by which a layout, or every layout ("all"), is refused. `may_be_refused`: a refusal
    is as good as an equal result. `twin`: makes a module of the same weights that must give the same bits.
    `dtype`: what it is compared in. `split`: the layer with which a stage begins, if not the first child.
    """

    name: str
    make: Callable[[], nn.Module]
    scope: Scope = "sample"
    draws: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    may_be_refused: bool = False
    twin: Callable[[], nn.Module] | None = None
    dtype: Literal["float32", "float64"] = "float64"
    split: str | None = None

    def refusal(self, layout: str) -> str | None:
        """A part of the sentence by which a layout is refused; None if it is not."""
        return self.refused.get(layout, self.refused.get("all"))


CASES: dict[str, Case] = {}

Module = TypeVar("Module", bound=type[nn.Module])


def idea(
    *,
    scope: Scope = "sample",
    draws: bool = False,
    refused: Mapping[str, str] | None = None,
    may_be_refused: bool = False,
    twin: Callable[[], nn.Module] | None = None,
    dtype: Literal["float32", "float64"] = "float64",
    split: str | None = None,
) -> Callable[[Module], Module]:
    """Registers a module class under its name."""

    def register(module: Module) -> Module:
        assert module.__name__ not in CASES, module.__name__
        assert module.__doc__, f"{module.__name__} does not say its idea"
        CASES[module.__name__] = Case(
            name=module.__name__,
            make=module,
            scope=scope,
            draws=draws,
            refused=refused or {},
            may_be_refused=may_be_refused,
            twin=twin,
            dtype=dtype,
            split=split,
        )
        return module

    return register
