"""A small source, streamed."""

from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.data.order import SampleOrder
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import Source
from tests.data.helpers import CPU, small_source, spec_of_small


def stream(
    order: SampleOrder,
    *,
    num_workers: int = 0,
    source: Source | None = None,
    preprocess_on_device: bool = False,
    eight_bit_transfer: bool = False,
    image_size: int | None = 7,
    replica: int = 0,
    replicas: int = 1,
) -> StreamFeed:
    return StreamFeed(
        source or small_source(),
        order=order,
        preprocess=Preprocess(spec_of_small(small_source()), image_size),
        micro_batch_size=2,
        device=CPU,
        num_workers=num_workers,
        preprocess_on_device=preprocess_on_device,
        eight_bit_transfer=eight_bit_transfer,
        replica=replica,
        replicas=replicas,
    )
