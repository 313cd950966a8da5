"""Chooses the layouts to measure, and the one-process reference that each must agree with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from drivetrain.core.errors import BadInputError
from drivetrain.schedules.accumulation_check import check_accumulation
from drivetrain.schedules.by_name import SCHEDULE_NAMES
from drivetrain.verify.cuts import Cut, Layout

__all__ = [
    "Choice",
    "Comparison",
    "choose_layouts",
    "pair_with_references",
    "reference_of",
    "usual_pipelines",
]

_STAGES = 2
# Four stages on two devices: device 0 has the first and the last stage, device 1 the two in the middle.
_LOOPED = (0, 1, 1, 0)
# Limits for the layouts that nobody asked for: all their processes share the cores of one machine.
_MOST_RANKS = 4
_MOST_DEFAULT_REPLICAS = 8


def usual_pipelines(*, global_batch: int, fewest: int, marked_stages: int = 0) -> tuple[list[Cut], list[str]]:
    """The default layouts with stages, and a note on each that is skipped.

    They are: two stages with every schedule, four stages on two devices, recomputation (all in one process),
    and stages on real ranks. Micro-batches have at least `fewest` samples. A model with marked modules is
    split at its marks.
    """
    stages = marked_stages or _STAGES
    if stages == 1:
        return [], ["stages: skipped, because all marked modules belong to one stage"]
    accumulation = _accumulation(global_batch, fewest=fewest, stages=stages)
    if accumulation is None:
        return [], [f"stages: skipped, because a global batch of {global_batch} has too few micro-batches"]
    plain = Cut(accumulation=accumulation, stages=stages)
    # Most weights of a U-Net are around its bottleneck, so splitting by parameters cuts its skip connections.
    elsewhere = plain if marked_stages else replace(plain, split_by="parameters")
    suits_grouped = accumulation % (2 * stages) == 0
    schedules = [name for name in SCHEDULE_NAMES if name != "grouped" or suits_grouped]
    cuts = [replace(plain, schedule=name) for name in schedules]
    if marked_stages in (0, len(_LOOPED)):
        cuts.append(replace(elsewhere, stages=len(_LOOPED), mapping=_LOOPED))
    cuts.append(replace(plain, recomputation=True))
    note = (
        f"stages: the grouped schedule is skipped, because it needs a multiple of {2 * stages} "
        f"micro-batches; --global-batch-size {2 * stages * fewest} works"
    )
    return [*(cut.played() for cut in cuts), *_on_ranks(plain, elsewhere)], [] if suits_grouped else [note]


def _accumulation(global_batch: int, *, fewest: int, stages: int) -> int | None:
    """A number of micro-batches that suits every schedule, or else the smallest possible; None if none is."""
    counts: list[int] = [2 * stages, stages, *range(2, global_batch + 1)]
    for count in counts:
        if global_batch % count == 0 and global_batch // count >= fewest:
            return count
    return None


def _on_ranks(plain: Cut, elsewhere: Cut) -> list[Cut]:
    """Stages on real processes: one replica, and two replicas with zero-bubble (late weight gradients)."""
    cuts = [plain]
    if plain.accumulation % 2 == 0:
        accumulation = plain.accumulation // 2
        cuts.append(replace(elsewhere, replicas=2, accumulation=accumulation, schedule="zero-bubble"))
    return [cut for cut in cuts if cut.ranks <= _MOST_RANKS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A layout and its reference; None if batch norm sees a different set of samples than any reference."""

    layout: Layout
    reference: Layout | None

    def rounded_alike(self) -> "Comparison":
        """The same comparison with two-pass batch norm on both sides, for groups of replicas in float32.

        The usual kernel sums the parts of a group in a different order than the whole. In float32 that
        alone can exceed the tolerance.
        """
        if self.layout.group == 1 or self.reference is None:
            return self
        return Comparison(
            layout=replace(self.layout, stable_norm=True), reference=replace(self.reference, stable_norm=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The layouts to measure: those the user asked for must be possible, the usual ones need not be."""

    asked: tuple[Layout, ...]
    usual: tuple[Layout, ...] = ()
    notes: tuple[str, ...] = ()


# The default layouts without stages; `_usual_cuts` adds batch-norm groups for models with batch norm.
_DEFAULT_CUTS = (
    Cut(accumulation=2),
    Cut(accumulation=4),
    Cut(replicas=2),
    Cut(replicas=4),
    Cut(replicas=2, accumulation=2),
)


def reference_of(*, micro: int, group: int, global_batch: int, has_batch_norm: bool) -> Layout:
    """The one-process reference: the whole batch at once, or, with batch norm, in the sets of the recipe."""
    normalised = micro * group if has_batch_norm else global_batch
    return Layout(micro=normalised, accumulation=global_batch // normalised)


def choose_layouts(
    asked: Sequence[Cut],
    *,
    own: Sequence[Cut],
    reference: Layout,
    group: int,
    has_batch_norm: bool,
    marked_stages: int = 0,
) -> Choice:
    """The layouts given by `--layouts`, or else those of the recipe (`own`) and the usual ones."""
    total = reference.global_batch
    if asked:
        for cut in asked:
            _require_fit(cut, global_batch=total, has_batch_norm=has_batch_norm)
        return Choice(asked=tuple(Layout.of(cut, global_batch=total) for cut in dict.fromkeys(asked)))
    # Batch norm needs two samples: torch refuses to normalise a layer that has one value per channel.
    fewest = 2 if has_batch_norm else 1
    pipelines, notes = usual_pipelines(global_batch=total, fewest=fewest, marked_stages=marked_stages)

    def fitting(cuts: Sequence[Cut]) -> tuple[Layout, ...]:
        layouts = [Layout.of(cut, global_batch=total) for cut in cuts if total % cut.parts == 0]
        return tuple(one for one in layouts if one != reference and one.normalised_set >= fewest)

    usual = dict.fromkeys([*_usual_cuts(group=group, has_batch_norm=has_batch_norm), *pipelines])
    return Choice(
        asked=fitting(own),
        usual=fitting([cut for cut in usual if cut not in own]),
        notes=tuple(notes),
    )


def pair_with_references(
    layouts: Sequence[Layout], *, reference: Layout, has_batch_norm: bool
) -> list[Comparison]:
    """Pairs each layout with the one-process layout that it must agree with.

    Without batch norm that is `reference`. With batch norm, a layout that normalises different sets of
    samples must agree with one process that normalises the same sets. If it is that process itself, there is
    nothing to compare it with.
    """
    return [
        Comparison(layout=layout, reference=_reference_for(layout, reference, has_batch_norm=has_batch_norm))
        for layout in layouts
    ]


def _reference_for(layout: Layout, reference: Layout, *, has_batch_norm: bool) -> Layout | None:
    if not has_batch_norm or layout.normalised_set == reference.normalised_set:
        return reference
    alone = layout.in_one_process()
    return None if alone == layout else alone


def _usual_cuts(*, group: int, has_batch_norm: bool) -> list[Cut]:
    grouped: list[Cut] = []
    for size in sorted({2, group} - {1}) if has_batch_norm else ():
        grouped += [
            Cut(replicas=size, accumulation=2, group=size),
            Cut(replicas=2 * size, group=size),
        ]
    return [*_DEFAULT_CUTS, *(cut for cut in grouped if cut.replicas <= _MOST_DEFAULT_REPLICAS)]


def _require_fit(cut: Cut, *, global_batch: int, has_batch_norm: bool) -> None:
    if global_batch % cut.parts:
        works = max(1, round(global_batch / cut.parts)) * cut.parts
        raise BadInputError(
            f"--layouts {cut.name} has {cut.parts} micro-batches, but a global batch of {global_batch} "
            f"samples is not divisible by {cut.parts}; --global-batch-size {works} works."
        )
    check_accumulation(cut.schedule, stages=cut.stages, accumulation=cut.accumulation)
    if cut.group > 1 and not has_batch_norm:
        raise BadInputError(
            f"--layouts {cut.name}: group has no effect on a model without batch norm; leave it out."
        )
