"""The schedule of an update over time: simulated from the plan, and measured with --profile."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from drivetrain.core.files import read_json
from drivetrain.recipe.plain import schedule_name
from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.contents import TimelineRow, UpdatePicture
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.pass_times import times_by_flops
from drivetrain.schedules.simulator import Simulation, simulate

__all__ = ["timelines_of"]

# More boxes than this can neither be drawn nor read.
_MOST_ACTIONS = 3000
_MOST_BYTES = 64_000_000
# Without measured times, the forward pass of a micro-batch through all stages is drawn as 1 ms.
_PASS_US = 1000.0
_DIGITS = 1
Event = Mapping[str, Any]


def timelines_of(run: StoredRun) -> list[UpdatePicture]:
    """The predicted update of a run with stages, and the last recorded update of a run with --profile."""
    trace = run.part("The measured timeline", _trace) or {}
    spans = [event for event in trace.get("traceEvents", []) if event.get("ph") == "X"]
    predicted = run.part("The predicted timeline", lambda run: _predicted(run, spans))
    pictures = [predicted, _measured(spans, facts=trace.get("otherData", {}))]
    return [picture for picture in pictures if picture is not None]


def _predicted(run: StoredRun, spans: Sequence[Event]) -> UpdatePicture | None:
    stages, schedule = run.plan.get("stages", []), run.plan.get("schedule")
    if schedule is None or len(stages) < 2:
        return None
    micro_batches = int(schedule["micro_batches"])
    if 3 * micro_batches * len(stages) > _MOST_ACTIONS:
        return None
    times = times_by_flops(
        [int(stage["flops"]) for stage in stages],
        recomputes=[bool(stage.get("recomputation")) for stage in stages],
    )
    name = schedule_name(schedule["name"])
    table = build_schedule(
        str(name), micro_batches=micro_batches, device_of=[int(each["device"]) for each in stages]
    )
    measured_us = _mean_passes_us(spans)
    relative = sum(times.forward) + sum(times.backward)
    scale = _PASS_US if measured_us is None else measured_us / relative
    # Skip connections follow the same stages, so a chain has the same order and, with free messages, times.
    found = simulate(table, forward_s=times.forward, backward_s=times.backward)
    return UpdatePicture(
        title=f"{name}, {micro_batches} micro-batches in {len(stages)} stages, predicted",
        source="predicted",
        rows=_simulated_rows(found, scale),
        facts=[
            ("idle share of devices", f"{found.bubble:.1%}"),
            ("assumes", str(schedule.get("bubble_assumes", times.source))),
            ("scale", _scale_words(measured_us)),
        ],
    )


def _simulated_rows(found: Simulation, scale: float) -> list[TimelineRow]:
    rows: dict[int, list[tuple[str, str, float, float]]] = defaultdict(list)
    for span in found.timeline:
        kind, start, length = span.action.kind.name.lower(), span.start_s, span.end_s - span.start_s
        rows[span.device].append((kind, str(span.action), *_rounded(start * scale, length * scale)))
    return [TimelineRow(device=f"device {device}", actions=rows[device]) for device in sorted(rows)]


def _scale_words(measured_us: float | None) -> str:
    if measured_us is None:
        return "relative: 1 ms is the forward pass of one micro-batch through all stages"
    return "the passes of a micro-batch take as long as measured, on average"


def _trace(run: StoredRun) -> dict[str, Any]:
    """What profile.json holds: what each device did and when; empty without --profile."""
    path = run.directory.path / "profile.json"
    if not path.is_file():
        return {}
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} is larger than {_MOST_BYTES // 10**6} MB")
    return read_json(path)


def _mean_passes_us(spans: Sequence[Event]) -> float | None:
    """The measured time of all passes of a micro-batch, without its data and messages."""
    passes = [span for span in spans if span["cat"] in ("forward", "backward", "input", "weight")]
    if not passes:
        return None
    micro_batches = {(span["pid"], span["args"]["update"], span["args"]["micro_batch"]) for span in passes}
    return float(sum(span["dur"] for span in passes)) / len(micro_batches)


def _measured(spans: Sequence[Event], *, facts: Mapping[str, Any]) -> UpdatePicture | None:
    if not spans:
        return None
    last = max(int(span["args"]["update"]) for span in spans)
    own = [span for span in spans if span["args"]["update"] == last]
    shown = sorted(own, key=lambda span: float(span["ts"]))[:_MOST_ACTIONS]
    begin = min(float(span["ts"]) for span in own)
    has_replicas = len({span["pid"] for span in own}) > 1
    rows: dict[tuple[int, int], list[tuple[str, str, float, float]]] = defaultdict(list)
    for span in shown:
        place = _rounded(float(span["ts"]) - begin, float(span["dur"]))
        label = str(span["name"]).removeprefix(str(span["cat"])).strip()
        rows[int(span["pid"]), int(span["tid"])].append((str(span["cat"]), label, *place))
    words = _profile_facts(facts)
    if len(shown) < len(own):
        words.append(("shown", f"the first {len(shown)} of {len(own)} actions"))
    return UpdatePicture(
        title=f"update {last}, measured",
        source="measured",
        rows=[
            TimelineRow(
                device=f"replica {replica}, device {device}" if has_replicas else f"device {device}",
                actions=rows[replica, device],
            )
            for replica, device in sorted(rows)
        ],
        facts=words,
    )


def _profile_facts(profile: Mapping[str, Any]) -> list[tuple[str, str]]:
    words = {"bubble": "idle share of devices", "simulated_bubble": "idle share, simulated with these times"}
    facts = [(words[name], f"{profile[name]:.1%}") for name in words if name in profile]
    if "passes_seconds" in profile:
        facts.append(("forward and backward passes of an update", f"{profile['passes_seconds']:.3g} s"))
    return facts


def _rounded(start: float, length: float) -> tuple[float, float]:
    return round(start, _DIGITS), round(length, _DIGITS)
