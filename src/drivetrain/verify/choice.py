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


def usual_pipelines(
    *, global_batch: int, fewest: int, marked_stages: int = 0, quick: bool = False
) -> tuple[list[Cut], list[str]]:
    """The default layouts with stages, and a note on each that is skipped.

    They are: two stages with every schedule, four stages on two devices, recomputation (all in one process),
    and stages on real ranks. With `quick` they are: 1f1b, recomputation, and one replica on real ranks.
    Micro-batches have at least `fewest` samples. A model with marked modules is split at its marks.
    """
    stages = marked_stages or _STAGES
    if stages == 1:
        return [], ["stages: skipped, because all marked modules belong to one stage"]
    wanted = [stages] if quick else [2 * stages, stages]
    accumulation = _accumulation(global_batch, fewest=fewest, wanted=wanted)
    if accumulation is None:
        return [], [f"stages: skipped, because a global batch of {global_batch} has too few micro-batches"]
    plain = Cut(accumulation=accumulation, stages=stages)
    if quick:
        on_ranks = [plain] if plain.ranks <= _MOST_RANKS else []
        return [plain.played(), replace(plain, recomputation=True).played(), *on_ranks], []
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


def _accumulation(global_batch: int, *, fewest: int, wanted: Sequence[int]) -> int | None:
    """The first wanted number of micro-batches that is possible, or else the smallest; None if none is."""
    counts: list[int] = [*wanted, *range(2, global_batch + 1)]
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
    """A layout and its reference; None if no process alone has the same sets of samples (see below)."""

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


def reference_of(
    *,
    micro: int,
    group: int,
    global_batch: int,
    has_batch_norm: bool,
    keeps_micro_batches: bool = False,
) -> Layout:
    """The one-process reference: the whole batch at once, or in the sets of the recipe if they matter.

    They matter to batch norm. `keeps_micro_batches`: the micro-batches matter too, because the model's random
    numbers belong to them or because bits are to be the same.
    """
    together = global_batch
    if has_batch_norm:
        together = micro * group
    elif keeps_micro_batches:
        together = micro
    return Layout(micro=together, accumulation=global_batch // together)


def choose_layouts(
    asked: Sequence[Cut],
    *,
    own: Sequence[Cut],
    reference: Layout,
    group: int,
    has_batch_norm: bool,
    marked_stages: int = 0,
    quick: bool = False,
) -> Choice:
    """The layouts given by `--layouts`, or else those of the recipe (`own`) and the usual ones.

    With `quick`, the usual ones are one of each family.
    """
    total = reference.global_batch
    if asked:
        for cut in asked:
            _require_fit(cut, global_batch=total, has_batch_norm=has_batch_norm)
        return Choice(asked=tuple(Layout.of(cut, global_batch=total) for cut in dict.fromkeys(asked)))
    # Batch norm needs two samples: torch refuses to normalise a layer that has one value per channel.
    fewest = 2 if has_batch_norm else 1
    pipelines, notes = usual_pipelines(
        global_batch=total, fewest=fewest, marked_stages=marked_stages, quick=quick
    )
    plain = (_quick_cuts if quick else _usual_cuts)(group=group, has_batch_norm=has_batch_norm)

    def fitting(cuts: Sequence[Cut]) -> tuple[Layout, ...]:
        layouts = [Layout.of(cut, global_batch=total) for cut in cuts if total % cut.parts == 0]
        return tuple(one for one in layouts if one != reference and one.normalised_set >= fewest)

    usual = dict.fromkeys([*plain, *pipelines])
    return Choice(
        asked=fitting(own),
        usual=fitting([cut for cut in usual if cut not in own]),
        notes=tuple(notes),
    )


def pair_with_references(
    layouts: Sequence[Layout],
    *,
    reference: Layout,
    has_batch_norm: bool,
    keeps_micro_batches: bool = False,
) -> list[Comparison]:
    """Pairs each layout with the one-process layout that it must agree with.

    That is `reference`, unless the layout normalises different sets of samples with batch norm, or has
    micro-batches of another size where `keeps_micro_batches` says that they matter. Then it is one process
    with the same sets and micro-batches. If there is none, or if the layout is that process itself, there is
    nothing to compare it with.
    """

    def is_alike(layout: Layout, alone: Layout) -> bool:
        has_same_sets = not has_batch_norm or layout.normalised_set == alone.normalised_set
        return has_same_sets and (not keeps_micro_batches or layout.micro == alone.micro)

    def reference_for(layout: Layout) -> Layout | None:
        if is_alike(layout, reference):
            return reference
        alone = layout.in_one_process()
        return alone if alone != layout and is_alike(layout, alone) else None

    return [Comparison(layout=layout, reference=reference_for(layout)) for layout in layouts]


def _usual_cuts(*, group: int, has_batch_norm: bool) -> list[Cut]:
    grouped: list[Cut] = []
    for size in sorted({2, group} - {1}) if has_batch_norm else ():
        grouped += [
            Cut(replicas=size, accumulation=2, group=size),
            Cut(replicas=2 * size, group=size),
        ]
    return [*_DEFAULT_CUTS, *(cut for cut in grouped if cut.replicas <= _MOST_DEFAULT_REPLICAS)]


def _quick_cuts(*, group: int, has_batch_norm: bool) -> list[Cut]:
    """One layout per family without stages; with batch norm the reference itself accumulates."""
    size = max(2, group)
    family = Cut(replicas=size, group=size) if has_batch_norm else Cut(accumulation=2)
    return [Cut(replicas=2), *([family] if family.replicas <= _MOST_RANKS else [])]


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
