"""The equivalence certificate of a recipe: compares each layout with one process, plus a negative control."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

from drivetrain.console.reporter import Reporter
from drivetrain.core.progress import showing_progress
from drivetrain.data.source import DataSplits
from drivetrain.models.own_model import MakeModel
from drivetrain.ranks.pool import RankPool
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.verify.choice import Comparison, choose_layouts, pair_with_references, reference_of
from drivetrain.verify.control import Control, run_control
from drivetrain.verify.cuts import Cut, Layout
from drivetrain.verify.measure import DtypeName
from drivetrain.verify.measurer import Measurer
from drivetrain.verify.points import Requirement, Row, compare_at_points
from drivetrain.verify.possible import StageProbe
from drivetrain.verify.subject import Subject, prepare_subject

__all__ = ["Certificate", "NotPossible", "verify_resolved"]

_USUAL_UPDATES, _QUICK_UPDATES = 10, 2
_DTYPES: tuple[DtypeName, ...] = ("float32", "float64")
_Pairs = dict[DtypeName, list[tuple[Layout, Layout]]]
"""The layouts to measure in each dtype, with their references."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPossible:
    """A usual layout whose stages the model cannot be split into, and the reason."""

    layout: Layout
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The result of a verification; a dtype in which no layout is equal has no negative control."""

    subject: Subject
    updates: int
    dtypes: tuple[DtypeName, ...]
    reference: Layout
    rows: tuple[Row, ...]
    different_by_definition: tuple[Layout, ...]
    not_possible: tuple[NotPossible, ...]
    controls: tuple[Control, ...]
    draws_from_torch: bool
    requires: Requirement = "equal"

    @property
    def ok(self) -> bool:
        are_good = all(row.is_identical if self.requires == "identical" else row.ok for row in self.rows)
        return are_good and all(control.is_caught for control in self.controls)

    @property
    def compares_same_micro_batches(self) -> bool:
        """Whether a layout is only compared with a process that computes the same micro-batches."""
        return self.subject.draws_per_micro_batch or self.requires == "identical"

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        has_batch_norm = self.subject.has_batch_norm
        return {
            "reference": {
                **self.reference.to_json(has_batch_norm=has_batch_norm),
                "model": self.subject.recipe.model,
                "dataset": self.subject.recipe.dataset,
                "global_batch": self.reference.global_batch,
                "updates": self.updates,
                "notes": list(self.subject.notes),
            },
            "layouts": [row.to_json(has_batch_norm=has_batch_norm) for row in self.rows],
            "different_by_definition": [
                layout.to_json(has_batch_norm=has_batch_norm) for layout in self.different_by_definition
            ],
            "not_possible": [
                {**one.layout.to_json(has_batch_norm=has_batch_norm), "reason": one.reason}
                for one in self.not_possible
            ],
            "negative_control": {control.dtype: control.to_json() for control in self.controls},
            "requires": self.requires,
            "ok": self.ok,
            "warnings": list(self.subject.warnings),
        }


def verify_resolved(
    resolved: ResolvedRecipe,
    *,
    reporter: Reporter,
    cuts: Sequence[Cut] = (),
    updates: int | None = None,
    dtypes: Sequence[DtypeName] = (),
    quick: bool = False,
    requires: Requirement = "equal",
    data: DataSplits | None = None,
    make_model: MakeModel | None = None,
    pool: RankPool | None = None,
) -> Certificate:
    """Measures and compares the layouts of a recipe; writes no files. Uses the ranks of `pool`, if given.

    `quick` measures one layout per family in smaller batches, and fewer `updates` and `dtypes` by default.
    If `identical` is required, a layout is compared with one process that has micro-batches of its size.
    """
    updates = updates or (_QUICK_UPDATES if quick else _USUAL_UPDATES)
    with showing_progress(reporter):
        subject = prepare_subject(resolved, updates=updates, quick=quick, data=data, make_model=make_model)
    for text in subject.warnings:
        reporter.warn(text)
    for text in subject.notes:
        reporter.say(text)
    reference, comparisons, not_possible = _comparisons(
        subject, cuts, quick=quick, has_own_micro_batches=requires == "identical", reporter=reporter
    )
    pairs = {dtype: _pairs(comparisons, dtype=dtype) for dtype in dtypes or _DTYPES}
    if quick and not dtypes:
        pairs = _once_each(pairs)
    measurer = _measurer(subject, pairs, reporter=reporter, pool=pool)
    rows: list[Row] = []
    controls: list[Control | None] = []
    draws_from_torch = False
    with closing(measurer):
        for dtype, some in pairs.items():
            found = [
                compare_at_points(measurer, layout, reference=alone, dtype=dtype) for layout, alone in some
            ]
            draws_from_torch |= any(measurer.alone(alone, dtype).draws_from_torch for _, alone in some)
            controls.append(run_control(measurer, found))
            rows += found
    return Certificate(
        subject=subject,
        updates=updates,
        dtypes=tuple(pairs),
        reference=reference,
        rows=tuple(rows),
        different_by_definition=tuple(one.layout for one in comparisons if one.reference is None),
        not_possible=tuple(not_possible),
        controls=tuple(control for control in controls if control is not None),
        draws_from_torch=draws_from_torch,
        requires=requires,
    )


def _pairs(comparisons: Sequence[Comparison], *, dtype: DtypeName) -> list[tuple[Layout, Layout]]:
    """Each comparable layout with its reference, for one dtype."""
    chosen = [one.rounded_alike() if dtype == "float32" else one for one in comparisons]
    return [(one.layout, one.reference) for one in chosen if one.reference is not None]


def _once_each(pairs: _Pairs) -> _Pairs:
    """Each layout in one dtype: in float32, and batch norm over groups of replicas in float64.

    Groups add up the same numbers in another order than one process. In float32, a network such as
    ResNet-50 has so many ReLUs that this moves a value past 0 with every seed (see points.py).
    """
    once: _Pairs = {
        "float32": [(layout, alone) for layout, alone in pairs["float32"] if layout.group == 1],
        "float64": [(layout, alone) for layout, alone in pairs["float64"] if layout.group > 1],
    }
    return {dtype: once[dtype] for dtype in _DTYPES if once[dtype]} or {"float32": []}


def _comparisons(
    subject: Subject, cuts: Sequence[Cut], *, quick: bool, has_own_micro_batches: bool, reporter: Reporter
) -> tuple[Layout, list[Comparison], list[NotPossible]]:
    """The main reference, the comparisons to make, and the usual layouts that are not possible."""
    batch, has_batch_norm = subject.batch, subject.has_batch_norm
    keeps_micro = subject.draws_per_micro_batch or has_own_micro_batches
    reference = reference_of(
        micro=batch.micro,
        group=batch.group,
        global_batch=batch.global_batch,
        has_batch_norm=has_batch_norm,
        keeps_micro_batches=keeps_micro,
    )
    probe = StageProbe(subject)
    choice = choose_layouts(
        cuts,
        own=batch.own,
        reference=reference,
        group=batch.group,
        has_batch_norm=has_batch_norm,
        marked_stages=0 if cuts else probe.marked_stages,
        quick=quick,
    )
    for text in choice.notes:
        reporter.say(text)
    for layout in choice.asked:
        if (refusal := probe.refusal(layout)) is not None:
            raise refusal
    refused = {layout: refusal for layout in choice.usual if (refusal := probe.refusal(layout)) is not None}
    for reason in dict.fromkeys(map(str, refused.values())):
        reporter.say(f"stages: some layouts are not possible. {reason}")
    layouts = [*choice.asked, *(layout for layout in choice.usual if layout not in refused)]
    pairs = pair_with_references(
        layouts, reference=reference, has_batch_norm=has_batch_norm, keeps_micro_batches=keeps_micro
    )
    not_possible = [NotPossible(layout=layout, reason=str(refusal)) for layout, refusal in refused.items()]
    return reference, pairs, not_possible


def _measurer(
    subject: Subject,
    pairs: _Pairs,
    *,
    reporter: Reporter,
    pool: RankPool | None,
) -> Measurer:
    planned = dict.fromkeys((layout, dtype) for dtype, some in pairs.items() for layout in chain(*some))
    return Measurer(subject, reporter=reporter, planned=list(planned), pool=pool)
