"""The memory of each device of a replica by part, beside what the device has."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn
from torch.nn.modules.conv import _ConvNd

from drivetrain.catalogue.data_sets import dataset_info, dataset_task, is_external_dataset
from drivetrain.catalogue.models import output_margin_of
from drivetrain.catalogue.tasks import DEFAULT_TASK, task_info
from drivetrain.pipeline.memory.memory_prediction import MemoryPrediction
from drivetrain.pipeline.memory.stage_memory import StageMemory
from drivetrain.plan.stage_report import LIBRARIES_BYTES
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.devices.target import Target
from drivetrain.recipe.layout import rank_count
from drivetrain.recipe.schema import Recipe

__all__ = ["WORKSPACE_BYTES", "DeviceMemory", "device_memories"]

# cuBLAS takes a workspace of 32 MiB per stream from torch's allocator on Hopper (torch 2.11), 8 MiB on older
# devices. A captured update is recorded on a stream of its own. The workspaces of cuDNN depend on the
# algorithm, which is chosen by timing when training starts; in benchmarks/planner.py they are about as large.
WORKSPACE_BYTES = 32 * 2**20
# `data/feeds/feed.py` keeps data on the device if they take at most this share of its free memory.
_RESIDENT_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The peak of one device of a replica, by part.

    `usable_bytes` is what tensors can use of `available_bytes`; both are None if they are not known.
    """

    device: int
    name: str
    parts: Mapping[str, int]
    available_bytes: int | None
    usable_bytes: int | None

    @property
    def peak_bytes(self) -> int:
        """The most bytes that the device holds at once."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool | None:
        """Whether the peak fits; None if the memory of the device is not known."""
        return None if self.usable_bytes is None else self.peak_bytes <= self.usable_bytes

    def to_json(self) -> dict[str, object]:
        """For `devices` of a plan."""
        return {
            "device": self.device,
            "name": self.name,
            "peak_bytes": self.peak_bytes,
            "available_bytes": self.available_bytes,
            "usable_bytes": self.usable_bytes,
            "fits": self.fits,
            **self.parts,
        }


def device_memories(
    planned: PlannedRun, prediction: MemoryPrediction, *, target: Target
) -> tuple[DeviceMemory, ...]:
    """The memory of all devices of one replica; the other replicas need the same."""
    return tuple(
        DeviceMemory(
            device=index,
            name=target.name,
            parts=_parts(planned, memory, prediction, index=index, target=target),
            available_bytes=target.memory_bytes,
            usable_bytes=target.usable_bytes,
        )
        for index, memory in enumerate(prediction.devices)
    )


def _parts(
    planned: PlannedRun, memory: StageMemory, prediction: MemoryPrediction, *, index: int, target: Target
) -> dict[str, int]:
    """What a device holds; on a CPU it is the resident memory of the process, else the allocator's peak."""
    recipe = planned.recipe
    held = memory.parameters + memory.gradients + memory.optimiser_states
    reads_images = index == 0 or index == len(prediction.devices) - 1
    parts = {
        "parameters": memory.parameters,
        "gradients": memory.gradients,
        "optimiser_states": memory.optimiser_states,
        "activations": memory.activations,
        # The peak may be that of the optimiser step, which runs while no activation is held.
        "working": memory.peak - held - memory.activations,
        "average": _average_bytes(recipe, memory),
        "data": _resident_bytes(planned, target=target) if reads_images else 0,
    }
    if target.is_cpu:
        parts["checkpoint"] = prediction.checkpoint if index == 0 else 0
        parts["libraries"] = LIBRARIES_BYTES
    else:
        parts["workspaces"] = _workspace_bytes(planned)
    always = ("parameters", "gradients", "optimiser_states", "activations", "working")
    return {name: size for name, size in parts.items() if size or name in always}


def _workspace_bytes(planned: PlannedRun) -> int:
    """The workspaces of cuDNN, for convolutions, and of cuBLAS, for all other products."""
    modules = list(planned.outline.model.modules())
    streams = 2 if rank_count(planned.recipe) == 1 and planned.recipe.capture != "off" else 1
    cublas = streams * any(isinstance(module, nn.Linear) for module in modules)
    cudnn = any(isinstance(module, _ConvNd) for module in modules)
    return (cublas + cudnn) * WORKSPACE_BYTES


def _average_bytes(recipe: Recipe, memory: StageMemory) -> int:
    """The average of the weights (--ema), which is kept in float32."""
    widening = 2 if recipe.precision == "16.16" else 1
    return 0 if recipe.ema is None else widening * memory.parameters


def _resident_bytes(planned: PlannedRun, *, target: Target) -> int:
    """The samples, if training keeps them on the device; 8 bits per value, as they are stored."""
    recipe, shape = planned.recipe, planned.shape
    if recipe.data_placement == "stream" or recipe.accelerator_side_preprocess is False:
        return 0
    margin = 2 * output_margin_of(recipe.model)
    height = shape.image_size + margin if shape.input_kind == "image" else 1
    width = (shape.width or shape.image_size) + margin
    values = shape.channels * height * width
    if task_info(dataset_task(recipe.dataset) or DEFAULT_TASK).has_dense_labels:
        values += shape.image_size * (shape.width or shape.image_size)
    size = planned.training.epochs.samples * values
    if recipe.data_placement == "resident":
        return size
    is_of_files = is_external_dataset(recipe.dataset) or not dataset_info(recipe.dataset).is_sized
    fits = target.memory_bytes is not None and size * _RESIDENT_SHARE <= target.memory_bytes
    return size if fits and not is_of_files else 0
