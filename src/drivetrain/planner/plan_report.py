"""An estimate as plain values for `plan --json`, added to the plan of a recipe."""

from typing import Any

from drivetrain.planner.estimate import UpdateEstimate
from drivetrain.planner.replicas import AllReduce
from drivetrain.planner.stage_times import StageTimes

__all__ = ["add_estimate"]


def add_estimate(plan: dict[str, Any], estimate: UpdateEstimate) -> dict[str, Any]:
    """The plan with times, devices and whether training fits."""
    added = {
        **plan,
        "devices": [device.to_json() for device in estimate.devices],
        "fits": estimate.fits,
        "estimate": _times(estimate),
        "warnings": [*plan["warnings"]],
    }
    if estimate.seconds_per_update is not None:
        added["seconds_per_update"] = estimate.seconds_per_update
        added["images_per_second"] = estimate.images_per_second
        added["training_seconds"] = estimate.training_s
    if estimate.stages is not None and "schedule" in plan:
        added["schedule"] = plan["schedule"] | _schedule(estimate, estimate.stages)
        added["stages"] = [
            stage | {"forward_s": forward, "backward_s": backward}
            for stage, forward, backward in zip(
                plan["stages"], estimate.stages.forward_s, estimate.stages.backward_s, strict=True
            )
        ]
    return added


def _times(estimate: UpdateEstimate) -> dict[str, Any]:
    reduced = estimate.all_reduce
    return {
        "source": estimate.source,
        "device": estimate.target.name,
        **({} if reduced is None else {"all_reduce": _all_reduce(reduced, estimate)}),
        "notes": list(estimate.notes),
    }


def _all_reduce(reduced: AllReduce, estimate: UpdateEstimate) -> dict[str, Any]:
    whole_s = estimate.seconds_per_update
    return {
        "bytes": reduced.bytes,
        "seconds": reduced.seconds,
        "waited_s": reduced.exposed_s,
        "share": reduced.exposed_s / whole_s if whole_s else 0.0,
        "overlaps": reduced.overlaps,
        "links": reduced.links,
    }


def _schedule(estimate: UpdateEstimate, stages: StageTimes) -> dict[str, Any]:
    return {
        "bubble": stages.bubble,
        "bubble_assumes": f"times of layers {estimate.source}, messages over {_links_in_words(estimate)}",
        "seconds_per_update": estimate.seconds_per_update,
        "bottleneck_stage": stages.bottleneck,
    }


def _links_in_words(estimate: UpdateEstimate) -> str:
    words = {
        "measured": "measured links",
        "described": "described links",
        "default": "links of 10 Gbit/s, as none are known",
    }
    return words[estimate.links]
