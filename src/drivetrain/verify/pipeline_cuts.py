"""The usual ways to cut a model, of which the cheap ones run in a single process."""

from dataclasses import replace

from drivetrain.schedules.by_name import SCHEDULE_NAMES
from drivetrain.verify.cuts import Cut

__all__ = ["usual_pipelines"]

_STAGES = 2
_LOOPED = (0, 1, 1, 0)
_MOST_RANKS = 4


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
