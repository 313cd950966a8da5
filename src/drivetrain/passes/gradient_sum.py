"""The gradient of all replicas: each one's flat gradient, added up bucket by bucket.

Buckets are cut once, at the borders of parameters, and always summed in the same order, the last
parameters first: their gradients are the first that a backward pass finishes.
"""

from collections.abc import Callable, Iterable
from functools import partial

from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device
from drivetrain.optim.flat_parameters import Bucket, FlatParameters, cut_into_buckets
from drivetrain.ranks.replica_group import ReplicaGroup, WaitClock

__all__ = ["DEFAULT_BUFFER_BYTES", "GradientSum", "pays_to_overlap"]

DEFAULT_BUFFER_BYTES = 8 * 2**20


class GradientSum:
    """Adds up the flat gradient over the replicas, in place, once per weight update.

    With `overlaps`, the backward passes of `model` are watched, and a bucket is summed as soon as the last
    one has finished it and all later ones; all replicas must then run the same layers in that pass if they
    have other sums in it, such as those of batch norm over a group.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        *,
        group: ReplicaGroup,
        max_buffer_bytes: int,
        overlaps: bool,
        model: nn.Module | None = None,
    ) -> None:
        self.bytes_summed = 0
        self.sums_issued = 0
        self._group = group.timed_apart()
        self._gradients = parameters.gradients
        self.buckets: list[Bucket] = []
        if group.size > 1 and parameters.segments:
            most = (max_buffer_bytes or DEFAULT_BUFFER_BYTES) // self._gradients.itemsize
            self.buckets = cut_into_buckets(parameters.segments, end=len(self._gradients), most=most)
        self._in_last_pass = False
        self._start_over()
        if overlaps and self.buckets:
            assert model is not None, "overlapping sums watch the model's backward pass"
            self._watch(model)

    @property
    def waits(self) -> WaitClock:
        """How long the sums were waited for."""
        return self._group.waits

    def begin_last_pass(self) -> None:
        """Says that the backward pass to come is the last one before the weight update."""
        self._start_over()
        self._in_last_pass = True

    def complete(self, names: Iterable[str]) -> None:
        """Says that these parameters have their whole gradient; what is complete is summed at once."""
        done = set(names)
        for missing in self._missing:
            missing -= done
        self._sum_complete()

    def finish(self) -> None:
        """Sums what is not summed yet, unused parameters included, and waits until all is there."""
        self._in_last_pass = False
        while self._next < len(self.buckets):
            self._sum_next()
        for wait in self._waits:
            wait()
        self._start_over()

    def _start_over(self) -> None:
        self._next = 0
        self._waits: list[Callable[[], object]] = []
        self._missing = [set(bucket.names) for bucket in self.buckets]

    def _watch(self, model: nn.Module) -> None:
        for index, bucket in enumerate(self.buckets):
            for name in bucket.names:
                parameter = model.get_parameter(name)
                parameter.register_post_accumulate_grad_hook(partial(self._note, name, index))  # type: ignore[no-untyped-call]

    def _note(self, name: str, bucket: int, _parameter: Tensor) -> None:
        """Called by the backward pass when a parameter's gradient is complete."""
        if not self._in_last_pass:
            return
        if name not in self._missing[bucket]:
            raise BadInputError(
                f"--model gives {name} its gradient in two parts, of which replicas may have added up one; "
                "where it recomputes a shared layer, use_reentrant=False works."
            )
        self._missing[bucket].remove(name)
        self._sum_complete()

    def _sum_complete(self) -> None:
        while self._next < len(self.buckets) and not self._missing[self._next]:
            self._sum_next()

    def _sum_next(self) -> None:
        bucket = self.buckets[self._next]
        part = self._gradients[bucket.start : bucket.end]
        self._next += 1
        self._waits.append(self._group.begin_sum(part))
        self.sums_issued += 1
        self.bytes_summed += part.nbytes


def pays_to_overlap(device: Device, total_bytes: int) -> bool:
    """Whether sums beside the backward pass shorten an update; accelerators have a stream for them.

    Two CPU processes of one thread: 15 % off resnet18's update (43 MiB in 9 buckets), nothing off that of
    cifar_resnet8, whose single bucket is complete only when the pass is over.
    """
    return not device.is_cpu or total_bytes > DEFAULT_BUFFER_BYTES
