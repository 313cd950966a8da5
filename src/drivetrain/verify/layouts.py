"""Which cuts of one global batch are measured, and what each is comparable with; nothing here needs torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from drivetrain.errors import BadInputError
from drivetrain.suggest import did_you_mean

__all__ = [
    "Comparison",
    "Cut",
    "Layout",
    "choose_layouts",
    "pair_with_references",
    "parse_cuts",
    "reference_of",
]

_MOST_DEFAULT_REPLICAS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A way to cut a global batch of any size; `group` replicas are normalised together."""

    replicas: int = 1
    accumulation: int = 1
    group: int = 1

    @property
    def parts(self) -> int:
        """Micro-batches of a global batch."""
        return self.replicas * self.accumulation

    @property
    def name(self) -> str:
        """As `--layouts` writes it."""
        counts = {"replicas": self.replicas, "accumulation": self.accumulation, "group": self.group}
        named = [f"{word}={count}" for word, count in counts.items() if count > 1]
        return ",".join(named or ["replicas=1"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(Cut):
    """A cut of a certain global batch, into micro-batches of `micro` samples."""

    micro: int

    @classmethod
    def of(cls, cut: Cut, *, global_batch: int) -> Self:
        """The layout that a cut makes of a global batch it divides."""
        return cls(
            replicas=cut.replicas,
            accumulation=cut.accumulation,
            group=cut.group,
            micro=global_batch // cut.parts,
        )

    @property
    def global_batch(self) -> int:
        """Samples per weight update."""
        return self.micro * self.parts

    @property
    def normalised_set(self) -> int:
        """How many samples batch norm normalises together."""
        return self.micro * self.group

    def in_one_process(self) -> Self:
        """One process that normalises the same samples together: its micro-batches are those sets."""
        return replace(
            self,
            replicas=1,
            group=1,
            micro=self.normalised_set,
            accumulation=self.global_batch // self.normalised_set,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A layout and what it must agree with; with nothing where it is different by definition."""

    layout: Layout
    reference: Layout | None


# The cuts of --layouts unless it is given; those with groups only where there is batch norm.
_DEFAULT_CUTS = (
    Cut(accumulation=2),
    Cut(accumulation=4),
    Cut(replicas=2),
    Cut(replicas=4),
    Cut(replicas=2, accumulation=2),
)


def parse_cuts(text: str) -> tuple[Cut, ...]:
    """What `--layouts 'replicas=2,accumulation=2;replicas=4,group=2'` lists."""
    return tuple(_parse_cut(part, whole=text) for part in text.split(";") if part.strip())


def reference_of(*, micro: int, group: int, global_batch: int, has_batch_norm: bool) -> Layout:
    """The one process that all layouts are held against: uncut, unless batch norm needs the recipe's sets."""
    normalised = micro * group if has_batch_norm else global_batch
    return Layout(micro=normalised, accumulation=global_batch // normalised)


def choose_layouts(
    asked: Sequence[Cut], *, own: Sequence[Cut], reference: Layout, group: int, has_batch_norm: bool
) -> list[Layout]:
    """The layouts to measure: what `--layouts` asks for, else the recipe's `own` and the usual ones."""
    total = reference.global_batch
    if asked:
        for cut in asked:
            _require_fit(cut, global_batch=total, has_batch_norm=has_batch_norm)
        return [Layout.of(cut, global_batch=total) for cut in dict.fromkeys(asked)]
    usual = dict.fromkeys(_usual_cuts(own, group=group, has_batch_norm=has_batch_norm))
    layouts = [Layout.of(cut, global_batch=total) for cut in usual if total % cut.parts == 0]
    # A single sample has no deviation to be divided by.
    fewest = 2 if has_batch_norm else 1
    return [layout for layout in layouts if layout != reference and layout.normalised_set >= fewest]


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


def _usual_cuts(own: Sequence[Cut], *, group: int, has_batch_norm: bool) -> list[Cut]:
    grouped: list[Cut] = []
    for size in sorted({2, group} - {1}) if has_batch_norm else ():
        grouped += [
            Cut(replicas=size, accumulation=2, group=size),
            Cut(replicas=2 * size, group=size),
        ]
    return [*own, *_DEFAULT_CUTS, *(cut for cut in grouped if cut.replicas <= _MOST_DEFAULT_REPLICAS)]


def _parse_cut(part: str, *, whole: str) -> Cut:
    counts: dict[str, int] = {}
    for setting in part.split(","):
        word, _, value = (piece.strip() for piece in setting.partition("="))
        known = list(Cut.__dataclass_fields__)
        if word not in known:
            raise BadInputError(
                f"--layouts {whole}: {word or setting} is no part of a layout.{did_you_mean(word, known)} "
                f"A layout is written as replicas=2,accumulation=2,group=2, several with ; between them."
            )
        if not (value.isascii() and value.isdecimal() and int(value) > 0) or word in counts:
            raise BadInputError(f"--layouts {whole}: {word} needs one whole number from 1, as in {word}=2.")
        counts[word] = int(value)
    cut = Cut(**counts)
    if cut.replicas % cut.group:
        raise BadInputError(
            f"--layouts {whole}: group={cut.group} does not divide {cut.replicas} replicas; "
            f"replicas={cut.group},group={cut.group} works."
        )
    return cut


def _require_fit(cut: Cut, *, global_batch: int, has_batch_norm: bool) -> None:
    if global_batch % cut.parts:
        works = max(1, round(global_batch / cut.parts)) * cut.parts
        raise BadInputError(
            f"--layouts {cut.name} makes {cut.parts} micro-batches, which {global_batch} samples do not fill "
            f"evenly; --global-batch-size {works} works."
        )
    if cut.group > 1 and not has_batch_norm:
        raise BadInputError(
            f"--layouts {cut.name}: group has no effect on a model without batch norm; leave it out."
        )
