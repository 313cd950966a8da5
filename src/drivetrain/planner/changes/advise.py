"""Looks for the cheapest change that makes a planned run fit, without measuring."""

from dataclasses import replace

from drivetrain.console.reporter import Reporter
from drivetrain.devices.device import device_count
from drivetrain.plan.stage_report import memory_of_run
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.changes.advice import Advice, Figures, candidates, cheapest_change
from drivetrain.planner.devices.described_device import DescribedDevice, described_names, read_device_file
from drivetrain.planner.devices.target import Target
from drivetrain.planner.estimate import UpdateEstimate, estimate_run
from drivetrain.ranks.threads import cores

__all__ = ["advise"]

# Only ratios of times count here: a core computes about this fast, and this much memory is read per second.
_CORE_FLOPS, _HOST_BYTES_PER_S = 5e10, 2e10
_UNKNOWN_ACCELERATOR = "a100-80gb"
_MANY = 10**6


def advise(planned: PlannedRun, estimate: UpdateEstimate) -> Advice | None:
    """The cheapest change that fits, by the memory that is predicted and by the times of a described device.

    What does not fit cannot be timed, so both the recipe and its changes are estimated. A device without a
    description is taken for a similar one: only the ratio of the times is used.
    """
    target = estimate.target
    available = target.usable_bytes
    if available is None or not estimate.devices:
        return None
    assumed = replace(target, described=target.described or _similar(target))

    def figures_of(changed: PlannedRun) -> Figures | None:
        with Reporter(quiet=True) as quiet:
            found = estimate_run(
                changed,
                memory_of_run(changed.outline, finds_savings=False),
                target=assumed,
                measure="off",
                reporter=quiet,
            )
        if found.peak_bytes is None:
            return None
        return Figures(
            peak_bytes=found.peak_bytes, seconds_per_update=found.seconds_per_update, source=found.source
        )

    usual = figures_of(planned)
    if usual is None:
        return None
    choices = candidates(
        planned.recipe,
        normalises=planned.totals.buffers > 0,
        on_cpu=target.is_cpu,
        most_stages=_devices(target) // planned.recipe.replicas,
    )
    return cheapest_change(
        planned.resolved, choices, available_bytes=available, usual=usual, figures_of=figures_of
    )


def _devices(target: Target) -> int:
    """How many devices the ranks may use; processes on a CPU share its memory, so more gain nothing."""
    if target.described is not None:
        hosts = target.described.hosts
        return _MANY if hosts is None else hosts * target.described.devices_per_host
    if target.is_cpu:
        return _MANY if target.is_limited else 1
    return device_count()


def _similar(target: Target) -> DescribedDevice:
    """A description for ratios of times."""
    if target.is_cpu:
        speed = _CORE_FLOPS * cores()
        return DescribedDevice(
            name=target.name,
            memory_bytes=1,
            flops={"float32": speed, "bfloat16": speed, "float16": speed},
            bytes_per_s=_HOST_BYTES_PER_S,
            kind="cpu",
        )
    for name in described_names():
        if name.partition("-")[0].upper() in target.name.upper():
            return read_device_file(name)
    return read_device_file(_UNKNOWN_ACCELERATOR)
