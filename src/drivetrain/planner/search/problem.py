"""The problem that the search solves, as plain numbers: layers, values, devices, batch and memory limit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from drivetrain.passes.gradient_sum import DEFAULT_BUFFER_BYTES
from drivetrain.planner.costs import CostSource, Link
from drivetrain.planner.devices.links import Links

__all__ = ["Layer", "Problem", "Saved", "Value", "micro_batches_of"]

# Times that are known for one micro-batch size are not trusted further away than this.
_TRUSTED_FACTOR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer; seconds and bytes are those of one micro-batch of `Problem.micro_batch_size`.

    `backward_s` is the whole backward pass. `working_bytes` is the temporary memory of that pass.
    """

    name: str
    forward_s: float
    backward_s: float
    weight_bytes: int = 0
    gradient_bytes: int = 0
    state_bytes: int = 0
    working_bytes: int = 0
    can_start: bool = True
    normalises: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor that later layers read; it is sent once to each stage that reads it."""

    name: str
    producer: int
    consumers: tuple[int, ...]
    size_bytes: int
    has_gradient: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A tensor that is kept for the backward pass: made by layer `producer`, first kept by layer `saver`."""

    producer: int
    saver: int
    size_bytes: int


def _no_seeds(_stages: int) -> tuple[tuple[int, ...], ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is given. The search may not change `global_batch` and `normalised_set`.

    `normalised_set` is the number of samples that batch norm normalises together; None without batch norm.
    `first_device_bytes` is what the first device holds besides, such as the copy made for checkpoints on a
    CPU, `overhead_bytes` what libraries take on every device. `stages` and `replicas` are given where the
    user chose them. `seeds` gives cuts to compare with for a number of stages, as the positions of first
    layers. `blocks` are the first layers of the blocks that recomputation without stages uses. With
    `shares_cores`, the devices are processes that divide the cores of a CPU; the times are those of a process
    with `timed_share` of these cores. `memory_limit` is the share `usable_share` of what the user typed or
    the device has. `typed_micro` and `typed_group` are the micro-batch size and the batch-norm group that the
    user chose. With `assumes_times` the times follow from operations alone.
    """

    layers: Sequence[Layer]
    values: Sequence[Value]
    saved: Sequence[Saved] = ()
    input_bytes: int = 0
    first_device_bytes: int = 0
    overhead_bytes: int = 0
    micro_batch_size: int
    global_batch: int
    normalised_set: int | None
    devices: int
    links: Links
    memory_limit: int | None = None
    usable_share: float = 1.0
    update_s: float = 0.0
    least_layer_s: float = 0.0
    host_bytes_per_s: float = 10e9
    stages: int | None = None
    replicas: int | None = None
    schedules: Sequence[str] = ("1f1b", "gpipe", "zero-bubble", "grouped", "sequential")
    shares_cores: bool = False
    timed_share: float = 1.0
    on_cpu: bool = False
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    typed_micro: int | None = None
    typed_group: int | None = None
    source: CostSource = "described"
    assumes_times: bool = False
    seeds: Callable[[int], Sequence[tuple[int, ...]]] = field(default=_no_seeds)
    blocks: tuple[int, ...] = ()

    def extra_bytes(self, device: int) -> int:
        """What a device of a replica holds whatever its stages are."""
        return self.overhead_bytes + (0 if device else self.first_device_bytes)

    def stage_link(self, devices_per_replica: int) -> Link:
        """The slowest link between neighbouring stages."""
        return self.links.slowest(devices_per_replica)

    def slowdown(self, processes: int) -> float:
        """How much longer than the known times passes take when this many processes compute at once."""
        return processes * self.timed_share if self.shares_cores else 1.0

    @property
    def starts(self) -> list[int]:
        """The positions at which a stage may begin, the first layer left out."""
        return [place for place, layer in enumerate(self.layers) if place and layer.can_start]

    def seconds_scale(self, micro: int) -> float:
        """The rule for times: in proportion to the micro-batch size."""
        return micro / self.micro_batch_size


def micro_batches_of(problem: Problem, *, replicas: int) -> list[tuple[int, int]]:
    """The sizes of micro-batches and batch-norm groups that keep the global batch and the normalised set."""
    if problem.global_batch % replicas:
        return []
    of_replica = problem.global_batch // replicas
    if problem.normalised_set is None:
        sizes = [(micro, 1) for micro in _divisors(of_replica)]
    else:
        groups = [group for group in _divisors(replicas) if problem.normalised_set % group == 0]
        sizes = [(problem.normalised_set // group, group) for group in groups]
    return [
        (micro, group)
        for micro, group in sizes
        if of_replica % micro == 0
        and _is_trusted(problem, micro)
        and problem.typed_micro in (None, micro)
        and (problem.typed_group in (None, group) or problem.normalised_set is None)
    ]


def _is_trusted(problem: Problem, micro: int) -> bool:
    known = problem.micro_batch_size
    return known <= micro * _TRUSTED_FACTOR and micro <= known * _TRUSTED_FACTOR


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]
