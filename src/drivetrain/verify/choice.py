"""Which cuts of one global batch and of a model are measured, and what each is comparable with."""

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
_LOOPED = (0, 1, 1, 0)
_MOST_RANKS = 4
_MOST_DEFAULT_REPLICAS = 8


# The usual ways to cut a model, of which the cheap ones run in a single process.


def usual_pipelines(*, global_batch: int, fewest: int, marked_stages: int = 0) -> tuple[list[Cut], list[str]]:
    """Two stages by every schedule, four on two devices, recomputation, real ranks; and what is left out.

    Micro-batches have `fewest` samples at least. A model whose modules are marked is cut as its marks say.
    """
    stages = marked_stages or _STAGES
    if stages == 1:
        return [], ["stages: left out, as all marked modules are of one stage"]
    accumulation = _accumulation(global_batch, fewest=fewest, stages=stages)
    if accumulation is None:
        return [], [f"stages: left out, as {global_batch} samples make too few micro-batches for them"]
    plain = Cut(accumulation=accumulation, stages=stages)
    # Weights lie around the bottleneck of a U-Net, so that such a cut goes through its skips.
    elsewhere = plain if marked_stages else replace(plain, split_by="parameters")
    suits_grouped = accumulation % (2 * stages) == 0
    schedules = [name for name in SCHEDULE_NAMES if name != "grouped" or suits_grouped]
    cuts = [replace(plain, schedule=name) for name in schedules]
    if marked_stages in (0, len(_LOOPED)):
        cuts.append(replace(elsewhere, stages=len(_LOOPED), mapping=_LOOPED))
    cuts.append(replace(plain, recomputation=True))
    note = (
        f"stages: the grouped schedule is left out, as it takes multiples of {2 * stages} micro-batches; "
        f"--global-batch-size {2 * stages * fewest} works"
    )
    return [*(cut.played() for cut in cuts), *_on_ranks(plain, elsewhere)], [] if suits_grouped else [note]


def _accumulation(global_batch: int, *, fewest: int, stages: int) -> int | None:
    """As many micro-batches as every schedule takes, or as few as are possible."""
    counts: list[int] = [2 * stages, stages, *range(2, global_batch + 1)]
    for count in counts:
        if global_batch % count == 0 and global_batch // count >= fewest:
            return count
    return None


def _on_ranks(plain: Cut, elsewhere: Cut) -> list[Cut]:
    """Real processes: one replica, and two whose weight gradients come late."""
    cuts = [plain]
    if plain.accumulation % 2 == 0:
        accumulation = plain.accumulation // 2
        cuts.append(replace(elsewhere, replicas=2, accumulation=accumulation, schedule="zero-bubble"))
    return [cut for cut in cuts if cut.ranks <= _MOST_RANKS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A layout and what it must agree with; with nothing where it is different by definition."""

    layout: Layout
    reference: Layout | None

    def rounded_alike(self) -> "Comparison":
        """The same in two passes of batch norm, where groups are compared in float32.

        The usual kernel adds up the parts of a group in another order than the whole, and float32 makes
        more of that than layouts may differ by.
        """
        if self.layout.group == 1 or self.reference is None:
            return self
        return Comparison(
            layout=replace(self.layout, stable_norm=True), reference=replace(self.reference, stable_norm=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Layouts that somebody asked for, which must be possible, and usual ones, which need not be."""

    asked: tuple[Layout, ...]
    usual: tuple[Layout, ...] = ()
    notes: tuple[str, ...] = ()


# Cuts of the batch alone, unless --layouts is given; those with groups only where there is batch norm.
_DEFAULT_CUTS = (
    Cut(accumulation=2),
    Cut(accumulation=4),
    Cut(replicas=2),
    Cut(replicas=4),
    Cut(replicas=2, accumulation=2),
)


def reference_of(*, micro: int, group: int, global_batch: int, has_batch_norm: bool) -> Layout:
    """The one process that all layouts are held against: uncut, unless batch norm needs the recipe's sets."""
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
    """The layouts to measure: what `--layouts` asks for, else the recipe's `own` and the usual ones."""
    total = reference.global_batch
    if asked:
        for cut in asked:
            _require_fit(cut, global_batch=total, has_batch_norm=has_batch_norm)
        return Choice(asked=tuple(Layout.of(cut, global_batch=total) for cut in dict.fromkeys(asked)))
    # A single sample has no deviation to be divided by.
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
    """What each layout is to agree with.

    Without batch norm that is the reference. With it, a layout that normalises other sets of samples than
    the reference agrees with one process that normalises the same sets, unless it is that process.
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
            f"--layouts {cut.name} makes {cut.parts} micro-batches, which {global_batch} samples do not fill "
            f"evenly; --global-batch-size {works} works."
        )
    check_accumulation(cut.schedule, stages=cut.stages, accumulation=cut.accumulation)
    if cut.group > 1 and not has_batch_norm:
        raise BadInputError(
            f"--layouts {cut.name}: group has no effect on a model without batch norm; leave it out."
        )
