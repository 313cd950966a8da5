"""The device that a plan is for: one of this machine, or one that a file describes."""

from dataclasses import dataclass

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device, choose_device
from drivetrain.plan.precision import is_cpu
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.ranks.threads import cores
from drivetrain.recipe.layout import devices_per_replica, rank_count
from drivetrain.recipe.schema import Recipe

__all__ = ["Target", "find_target"]

# With `expandable_segments`, torch reserved 3 to 6 % more than tensors used on an H200 (torch 2.11: unet,
# unet_same, resnet50, convnext_atto).
_ALLOCATOR_SHARE = 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The device of one rank; `here` is None unless it is on this machine, `memory_bytes` if unknown.

    `sharing` is how many ranks compute with the same cores: more than one only on a CPU with few cores.
    `is_limited`: the memory is a limit that the user has set for each rank.
    """

    name: str
    is_cpu: bool
    memory_bytes: int | None
    here: Device | None = None
    described: DescribedDevice | None = None
    sharing: float = 1.0
    is_limited: bool = False

    @property
    def usable_bytes(self) -> int | None:
        """What tensors can use: an accelerator's allocator rounds, and cannot hand out every gap."""
        return None if self.memory_bytes is None else int(self.memory_bytes * self.usable_share)

    @property
    def usable_share(self) -> float:
        """The share of the memory that tensors can use."""
        return 1.0 if self.is_cpu else 1 - _ALLOCATOR_SHARE

    @property
    def can_measure(self) -> bool:
        """Whether updates can be timed now."""
        return self.here is not None


def find_target(
    recipe: Recipe, *, described: DescribedDevice | None = None, memory_limit_bytes: int | None = None
) -> Target:
    """The device of a recipe, and the memory that each rank may use on it.

    On an accelerator that is what is free now. The ranks on a CPU share all its memory, from which other
    programs can be moved.
    """
    if described is not None:
        _require_enough(described, recipe)
        memory = described.memory_bytes if memory_limit_bytes is None else memory_limit_bytes
        return Target(
            name=described.name,
            is_cpu=described.kind == "cpu",
            memory_bytes=memory,
            described=described,
            is_limited=memory_limit_bytes is not None,
        )
    on_cpu = is_cpu(recipe.device)
    try:
        here = choose_device(recipe.device)
    except BadInputError:
        return Target(name=recipe.device, is_cpu=on_cpu, memory_bytes=memory_limit_bytes)
    ranks = rank_count(recipe)
    free = here.total_memory_bytes // ranks if on_cpu else here.free_memory_bytes
    return Target(
        name=here.description,
        is_cpu=on_cpu,
        memory_bytes=free if memory_limit_bytes is None else memory_limit_bytes,
        here=here,
        is_limited=memory_limit_bytes is not None,
        sharing=max(1.0, ranks / cores()) if on_cpu else 1.0,
    )


def _require_enough(described: DescribedDevice, recipe: Recipe) -> None:
    """Refuses more ranks than the described hosts have devices."""
    ranks, there = rank_count(recipe), described.devices
    if there is None or ranks <= there:
        return
    each = devices_per_replica(recipe)
    fits = f"--replicas {there // each}" if there >= each else f"--stages {there}"
    raise BadInputError(
        f"--replicas {recipe.replicas} of {each} devices each needs {ranks} devices, but --device-file "
        f"describes {there} ({described.hosts} hosts with {described.devices_per_host} each); {fits} fits."
    )
