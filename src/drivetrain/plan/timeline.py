"""An update of a pipeline as a picture: a row per device, one column per moment."""

from collections.abc import Sequence

from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.costs import backward_costs
from drivetrain.schedules.simulator import Simulation, Span, simulate

__all__ = ["draw_timeline"]

_IDLE, _MORE = ".", "-"
_LEAST_COLUMNS = 20


def draw_timeline(
    schedule_name: str,
    *,
    micro_batches: int,
    device_of: Sequence[int],
    flops: Sequence[int],
    recomputes: Sequence[bool],
    width: int,
) -> list[str]:
    """Lines such as `0: F0F1....B0--`: forward, backward, or its input and weight parts, and idle time.

    Of many micro-batches twice as many as stages are shown, enough for the pattern to appear.
    """
    stages = len(device_of)
    shown = min(micro_batches, 2 * stages)
    table = build_schedule(schedule_name, micro_batches=shown, device_of=device_of)
    costs = [max(cost, 1) for cost in flops]
    simulated = simulate(table, forward_s=costs, backward_s=backward_costs(costs, recomputes=recomputes))
    label = len(str(table.devices - 1)) + 2
    columns = max(width - label, _LEAST_COLUMNS)
    rows = [f"{device}: ".rjust(label) + _row(simulated, device, columns) for device in range(table.devices)]
    return [f"the first {shown} of {micro_batches} micro-batches:", *rows] if shown < micro_batches else rows


def _row(simulated: Simulation, device: int, columns: int) -> str:
    scale = columns / simulated.seconds_per_update
    row = [_IDLE] * columns
    for span in simulated.timeline:
        if span.device == device:
            start = min(round(span.start_s * scale), columns - 1)
            end = max(round(span.end_s * scale), start + 1)
            row[start:end] = _word(span, end - start)
    return "".join(row).rstrip(_IDLE)


def _word(span: Span, length: int) -> list[str]:
    """The action's letter and micro-batch as far as there is room."""
    text = f"{span.action.kind.value}{span.action.micro_batch}"
    if len(text) > length:
        text = span.action.kind.value
    return list(text.ljust(length, _MORE)[:length])
