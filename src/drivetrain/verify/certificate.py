"""The equivalence certificate of a recipe: every layout held against one process, with a negative control."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from typing import Any

from torch import nn

from drivetrain.cluster.pool import RankPool
from drivetrain.data.source import DataSplits
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.run.reporter import Reporter
from drivetrain.verify.compare import TOLERANCES, Difference, catches_control, compare
from drivetrain.verify.layouts import (
    Comparison,
    Cut,
    Layout,
    choose_layouts,
    pair_with_references,
    reference_of,
)
from drivetrain.verify.measure import DtypeName
from drivetrain.verify.measurer import Measurer
from drivetrain.verify.subject import Subject, prepare_subject

__all__ = ["Certificate", "Row", "verify_resolved"]

_MOST_POINTS: dict[DtypeName, int] = {"float32": 8, "float64": 1}
_LARGEST_JUMP = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A layout in one type, and how far it lies, at the last of `points`, from what it should agree with."""

    layout: Layout
    reference: Layout
    dtype: DtypeName
    points: int
    difference: Difference

    def to_json(self, *, has_batch_norm: bool) -> dict[str, Any]:
        """Plain values; an error that is not finite is null."""
        found = self.difference
        return {
            **_layout_json(self.layout, has_batch_norm=has_batch_norm),
            "schedule": "none",
            "recomputation": False,
            "dtype": self.dtype,
            "points": self.points,
            "compared_with": _layout_json(self.reference, has_batch_norm=has_batch_norm),
            "max_relative_gradient_error": _finite(found.gradients.error),
            "worst_gradient": found.gradients.name,
            "loss_error": _finite(found.loss),
            "batch_norm_error": None if found.statistics is None else _finite(found.statistics.error),
            "weight_error": _finite(found.weights),
            "ok": found.ok,
            "failures": found.failures,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a verification found; `controls` tells by type whether a wrong gradient was noticed."""

    subject: Subject
    updates: int
    reference: Layout
    rows: tuple[Row, ...]
    different_by_definition: tuple[Layout, ...]
    controls: dict[DtypeName, bool]
    draws_from_torch: bool

    @property
    def ok(self) -> bool:
        return all(row.difference.ok for row in self.rows) and all(self.controls.values())

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        has_batch_norm = self.subject.has_batch_norm
        return {
            "reference": {
                **_layout_json(self.reference, has_batch_norm=has_batch_norm),
                "model": self.subject.recipe.model,
                "dataset": self.subject.recipe.dataset,
                "global_batch": self.reference.global_batch,
                "updates": self.updates,
                "notes": list(self.subject.notes),
            },
            "layouts": [row.to_json(has_batch_norm=has_batch_norm) for row in self.rows],
            "different_by_definition": [
                _layout_json(layout, has_batch_norm=has_batch_norm) for layout in self.different_by_definition
            ],
            "negative_control": {dtype: "caught" if ok else "missed" for dtype, ok in self.controls.items()},
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
    model: nn.Module | None = None,
    pool: RankPool | None = None,
) -> Certificate:
    """Measures a recipe's layouts and compares them; nothing is written. `pool` are ranks to borrow."""
    subject = prepare_subject(resolved, updates=updates, data=data, model=model)
    reference, comparisons = _comparisons(subject, cuts)
    for text in subject.warnings:
        reporter.warn(text)
    for text in subject.notes:
        reporter.say(text)
    measurer = _measurer(subject, reference, comparisons, dtypes=dtypes, reporter=reporter, pool=pool)
    rows: list[Row] = []
    controls: dict[DtypeName, bool] = {}
    draws_from_torch = False
    with closing(measurer):
        for dtype in dtypes:
            expected = measurer.alone(reference, dtype)
            controls[dtype] = catches_control(expected, tolerance=TOLERANCES[dtype])
            draws_from_torch |= expected.draws_from_torch
            rows += [
                _row(measurer, one.layout, reference=one.reference, dtype=dtype)
                for one in comparisons
                if one.reference is not None
            ]
    return Certificate(
        subject=subject,
        updates=updates,
        reference=reference,
        rows=tuple(rows),
        different_by_definition=tuple(one.layout for one in comparisons if one.reference is None),
        controls=controls,
        draws_from_torch=draws_from_torch,
    )


def _comparisons(subject: Subject, cuts: Sequence[Cut]) -> tuple[Layout, list[Comparison]]:
    batch, has_batch_norm = subject.batch, subject.has_batch_norm
    reference = reference_of(
        micro=batch.micro, group=batch.group, global_batch=batch.global_batch, has_batch_norm=has_batch_norm
    )
    layouts = choose_layouts(
        cuts, own=batch.own, reference=reference, group=batch.group, has_batch_norm=has_batch_norm
    )
    return reference, pair_with_references(layouts, reference=reference, has_batch_norm=has_batch_norm)


def _measurer(
    subject: Subject,
    reference: Layout,
    comparisons: Sequence[Comparison],
    *,
    dtypes: Sequence[DtypeName],
    reporter: Reporter,
    pool: RankPool | None,
) -> Measurer:
    pairs = [(one.layout, one.reference) for one in comparisons if one.reference is not None]
    layouts = {reference, *(layout for pair in pairs for layout in pair)}
    return Measurer(
        subject,
        reporter=reporter,
        total=len(layouts) * len(dtypes),
        replicas=max(layout.replicas for layout in layouts),
        pool=pool,
    )


def _row(measurer: Measurer, layout: Layout, *, reference: Layout, dtype: DtypeName) -> Row:
    """Compares at several points where it must: a gradient jumps where rounding moves a value past a kink.

    Such are 0 for a ReLU and the neighbours of a maximum; a layout that is wrong is wrong at every point.
    """
    for point in range(_MOST_POINTS[dtype]):
        expected = measurer.alone(reference, dtype, point=point)
        found, ranks_agree = measurer.measured(layout, dtype, point=point)
        difference = compare(expected, found, tolerance=TOLERANCES[dtype], ranks_agree=ranks_agree)
        if difference.ok or difference.gradients.error > _LARGEST_JUMP:
            break
    return Row(layout=layout, reference=reference, dtype=dtype, points=point + 1, difference=difference)


def _layout_json(layout: Layout, *, has_batch_norm: bool) -> dict[str, Any]:
    return {
        "layout": layout.name,
        "replicas": layout.replicas,
        "accumulation": layout.accumulation,
        "micro_batch": layout.micro,
        **({"group": layout.group, "normalised_set": layout.normalised_set} if has_batch_norm else {}),
    }


def _finite(error: float) -> float | None:
    return error if isfinite(error) else None
