"""The equivalence certificate of a recipe: compares each layout with one process, plus a negative control."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
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
from drivetrain.verify.points import Row, compare_at_points
from drivetrain.verify.possible import StageProbe
from drivetrain.verify.subject import Subject, prepare_subject

__all__ = ["Certificate", "NotPossible", "verify_resolved"]


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

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows) and all(control.is_caught for control in self.controls)

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
            "ok": self.ok,
            "warnings": list(self.subject.warnings),
        }


def verify_resolved(
    resolved: ResolvedRecipe,
    *,
    reporter: Reporter,
    cuts: Sequence[Cut] = (),
    updates: int = 10,
    dtypes: Sequence[DtypeName] = ("float32", "float64"),
    data: DataSplits | None = None,
    make_model: MakeModel | None = None,
    pool: RankPool | None = None,
) -> Certificate:
    """Measures and compares the layouts of a recipe; writes no files. Uses the ranks of `pool`, if given."""
    with showing_progress(reporter):
        subject = prepare_subject(resolved, updates=updates, data=data, make_model=make_model)
    for text in subject.warnings:
        reporter.warn(text)
    for text in subject.notes:
        reporter.say(text)
    reference, comparisons, not_possible = _comparisons(subject, cuts, reporter=reporter)
    pairs = {dtype: _pairs(comparisons, dtype=dtype) for dtype in dtypes}
    measurer = _measurer(subject, reference, pairs, reporter=reporter, pool=pool)
    rows: list[Row] = []
    controls: list[Control | None] = []
    draws_from_torch = False
    with closing(measurer):
        for dtype in dtypes:
            draws_from_torch |= measurer.alone(reference, dtype).draws_from_torch
            found = [
                compare_at_points(measurer, layout, reference=alone, dtype=dtype)
                for layout, alone in pairs[dtype]
            ]
            controls.append(run_control(measurer, found))
            rows += found
    return Certificate(
        subject=subject,
        updates=updates,
        dtypes=tuple(dtypes),
        reference=reference,
        rows=tuple(rows),
        different_by_definition=tuple(one.layout for one in comparisons if one.reference is None),
        not_possible=tuple(not_possible),
        controls=tuple(control for control in controls if control is not None),
        draws_from_torch=draws_from_torch,
    )


def _pairs(comparisons: Sequence[Comparison], *, dtype: DtypeName) -> list[tuple[Layout, Layout]]:
    """Each comparable layout with its reference, for one dtype."""
    chosen = [one.rounded_alike() if dtype == "float32" else one for one in comparisons]
    return [(one.layout, one.reference) for one in chosen if one.reference is not None]


def _comparisons(
    subject: Subject, cuts: Sequence[Cut], *, reporter: Reporter
) -> tuple[Layout, list[Comparison], list[NotPossible]]:
    """The main reference, the comparisons to make, and the usual layouts that are not possible."""
    batch, has_batch_norm = subject.batch, subject.has_batch_norm
    reference = reference_of(
        micro=batch.micro, group=batch.group, global_batch=batch.global_batch, has_batch_norm=has_batch_norm
    )
    probe = StageProbe(subject)
    choice = choose_layouts(
        cuts,
        own=batch.own,
        reference=reference,
        group=batch.group,
        has_batch_norm=has_batch_norm,
        marked_stages=0 if cuts else probe.marked_stages,
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
    pairs = pair_with_references(layouts, reference=reference, has_batch_norm=has_batch_norm)
    not_possible = [NotPossible(layout=layout, reason=str(refusal)) for layout, refusal in refused.items()]
    return reference, pairs, not_possible


def _measurer(
    subject: Subject,
    reference: Layout,
    pairs: Mapping[DtypeName, Sequence[tuple[Layout, Layout]]],
    *,
    reporter: Reporter,
    pool: RankPool | None,
) -> Measurer:
    layouts = [{reference, *(layout for pair in some for layout in pair)} for some in pairs.values()]
    return Measurer(
        subject,
        reporter=reporter,
        total=sum(len(some) for some in layouts),
        ranks=max(layout.ranks for some in layouts for layout in some),
        pool=pool,
    )
