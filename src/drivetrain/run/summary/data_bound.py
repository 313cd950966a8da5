"""Whether a run's data kept up with its device: what the loader delivered beside what the device could do."""

import math
from dataclasses import dataclass

from drivetrain.console.speed_text import rounded_speed, speed_text
from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.run.loop.loop import RunLoop

__all__ = ["DataBound", "data_bound_of"]

_WORTH_A_WORD = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class DataBound:
    """Images per second of the loader by itself, and of the device if it had not waited for any."""

    loader_images_per_second: float
    device_images_per_second: float

    def to_json(self) -> dict[str, float]:
        """For the summary event."""
        return {
            "loader_images_per_second": rounded_speed(self.loader_images_per_second),
            "device_images_per_second": rounded_speed(self.device_images_per_second),
        }

    def sentence(self) -> str:
        """For the person."""
        loader, device = map(speed_text, (self.loader_images_per_second, self.device_images_per_second))
        return (
            f"the data did not keep up: the loader delivers {loader} images/s and "
            f"the device could train {device}; see --num-workers, and `drivetrain "
            "bench data` for what takes the loader's time."
        )


def data_bound_of(loop: RunLoop) -> DataBound | None:
    """What bounds a streamed run, where waiting for data took a part of its time that is worth a word."""
    if not isinstance(loop.program.feed, StreamFeed) or not loop.replica_times:
        return None
    slowest = max(loop.replica_times, key=lambda times: times.data_s / times.execution_s)
    if slowest.data_s < _WORTH_A_WORD * slowest.execution_s:
        return None
    # A training process that prepares its samples itself does so in turns with the device.
    loading_s = slowest.data_s if loop.recipe.num_workers == 0 else slowest.execution_s
    loader = loop.timed_samples / loading_s
    if math.isfinite(loop.fastest_update_s):
        device = loop.program.order.global_batch / loop.fastest_update_s
    else:
        device = loop.timed_samples / max(slowest.execution_s - slowest.data_s, 1e-9)
    if device <= loader:
        return None
    return DataBound(loader_images_per_second=loader, device_images_per_second=device)
