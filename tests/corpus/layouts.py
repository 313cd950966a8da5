"""The layouts of the corpus. Each splits the same global batch of 8 samples; all but one in micro-batches of 2."""

from collections.abc import Iterator

from drivetrain.verify.cuts import Layout
from tests.corpus.registry import Case

__all__ = ["LAYOUTS", "OTHER_MICRO", "REFERENCE", "comparable", "needs_warning"]

_MICRO = 2
REFERENCE = Layout(micro=_MICRO, accumulation=4)
OTHER_MICRO = "larger micro-batches"
_REPLICAS = "replicas on ranks"


def _staged(stages: int = 2, *, schedule: str = "1f1b", recomputation: bool = False) -> Layout:
    return Layout(
        micro=_MICRO,
        accumulation=4,
        stages=stages,
        schedule=schedule,
        recomputation=recomputation,
        processes=1,
    )


LAYOUTS: dict[str, Layout] = {
    OTHER_MICRO: Layout(micro=2 * _MICRO, accumulation=2),
    "2 stages": _staged(),
    "2 stages, zero-bubble": _staged(schedule="zero-bubble"),
    "2 stages, grouped": _staged(schedule="grouped"),
    "2 stages, recomputed": _staged(schedule="sequential", recomputation=True),
    "4 stages": _staged(4, schedule="gpipe"),
    "recomputation": Layout(micro=_MICRO, accumulation=4, recomputation=True),
    _REPLICAS: Layout(micro=_MICRO, accumulation=2, replicas=2),
    "stages on ranks": Layout(micro=_MICRO, accumulation=4, stages=2),
}


def comparable(case: Case) -> Iterator[str]:
    """The layouts in which a module has to compute what it computes in the reference."""
    for name in LAYOUTS:
        if name == OTHER_MICRO and case.scope != "sample":
            continue
        if name == _REPLICAS and case.scope == "call":
            continue
        yield name


def needs_warning(case: Case) -> Iterator[str]:
    """The layouts in which a module's own state depends on the layout, so that the run has to say so."""
    if case.scope == "call":
        yield from (OTHER_MICRO, _REPLICAS)
