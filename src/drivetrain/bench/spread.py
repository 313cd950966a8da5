"""Says where the repeats of a measurement disagree; nothing here needs torch."""

from collections.abc import Sequence

from drivetrain.bench.repetition import Repetition
from drivetrain.bench.result import Entry

__all__ = ["spread_notes"]

_MOST_TIMES = 1.5


def spread_notes(entries: Sequence[Entry], repetition: Repetition) -> list[str]:
    """A sentence for each entry whose slowest repeat took much longer than its fastest."""
    notes = []
    for entry in entries:
        speeds = [float(repeat["images_per_second"]) for repeat in entry.repeats]
        if not speeds or max(speeds) <= _MOST_TIMES * min(speeds):
            continue
        times = max(speeds) / min(speeds)
        is_cold = repetition.warmup_steps == 0 and speeds[0] == min(speeds)
        cause = (
            "the first one had no warm-up (--warmup-steps 3 gives it one)"
            if is_cold
            else "something else uses the machine, or a repeat is too short (--steps)"
        )
        notes.append(f"the repeats of {entry.name} differ by {times:.1f} times: {cause}")
    return notes
