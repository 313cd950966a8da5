"""Spreads a trained model over several devices of one process for inference, stage by stage."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.devices.device import Device
from drivetrain.models.memory_format import follow_memory_format, in_memory_format, memory_format_of
from drivetrain.passes.forward import Precision, choose_precision
from drivetrain.pipeline.cutting.cut import Cut
from drivetrain.pipeline.cutting.settings import has_own_precisions
from drivetrain.pipeline.cutting.stage_plan import plan_stages
from drivetrain.pipeline.graph.trace import check_image_shape
from drivetrain.pipeline.runtime.root_hooks import RootHooks
from drivetrain.recipe.layout import devices_per_replica
from drivetrain.recipe.schema import Recipe

__all__ = ["SpreadModel", "spread_over_devices"]


class SpreadModel(nn.Module):
    """Replaces `model`: runs each stage on its device, and returns the output on the images' device."""

    def __init__(
        self,
        model: nn.Module,
        cut: Cut,
        *,
        devices: Sequence[torch.device],
        precisions: Sequence[Precision],
        image_shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.whole = model
        self._hooks = RootHooks(model)
        used = cut.in_evaluation
        self._stages, self._devices, self._precisions = used.stages, devices, precisions
        self._images, self._output = used.input, used.output
        self._image_shape = image_shape
        follow_memory_format(self, of=model)
        for part in (cut, used):
            for stage, device in zip(part.stages, devices, strict=True):
                stage.to(device=device).to(memory_format=memory_format_of(model))  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        with _only_in(self._precisions[0]):
            images = self._hooks.before(images)
        if self._image_shape is not None:
            check_image_shape(images, self._image_shape)
        values = {self._images: images}
        for stage, device, precision in zip(self._stages, self._devices, self._precisions, strict=True):
            facts = stage.stage_facts
            with _only_in(precision):
                outputs = stage(*(values[name].to(device, non_blocking=True) for name in facts.inputs))
            values.update(zip(facts.outputs, outputs, strict=True))
        with _only_in(self._precisions[-1]):
            return self._hooks.after(images, values[self._output].to(images.device))

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The state of the whole model, wherever its stages are."""
        state: dict[str, Any] = self.whole.state_dict(*args, **kwargs)
        return state

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Loads the state of the whole model."""
        return self.whole.load_state_dict(*args, **kwargs)


def _only_in(precision: Precision) -> AbstractContextManager[object]:
    """Runs a stage in its own precision, whatever autocast is active around it."""
    is_half = precision.compute_dtype != torch.float32
    return torch.autocast(
        precision.device_type, dtype=precision.compute_dtype if is_half else None, enabled=is_half
    )


def spread_over_devices(
    recipe: Recipe,
    model: nn.Module,
    *,
    device: Device,
    image_shape: tuple[int, int, int],
    devices: Sequence[torch.device] | None = None,
    measured_cut: tuple[str, ...] | None = None,
) -> nn.Module:
    """The model on as many devices as a replica had, or on `device` alone if there are fewer.

    `devices` lists the devices to use, one for each device of a replica. `measured_cut` is the list of stage
    boundaries that the training chose by measuring. Stages keep their own precision.
    """
    wanted = devices_per_replica(recipe)
    if devices is None:
        count = 0 if device.is_cpu else torch.accelerator.device_count()
        devices = [torch.device(device.torch_device.type, index) for index in range(min(count, wanted))]
    is_spread = wanted > 1 and len(devices) >= wanted
    if not is_spread and not has_own_precisions(recipe):
        return in_memory_format(model.to(device=device.torch_device))
    # Only the placement of the stages matters here, so any schedule will do.
    in_order = recipe.model_copy(update={"pipeline_schedule": "sequential"})
    plan = plan_stages(
        in_order,
        model,
        image_shape=image_shape,
        micro=1,
        accumulation=1,
        choose=lambda measure: measured_cut or measure(),
    )
    assert plan is not None, "devices and precisions of stages mean that there are some"
    places = [devices[home] if is_spread else device.torch_device for home in plan.device_of]
    precisions = [choose_precision(recipe, device, of_stage=one.precision) for one in plan.settings]
    return SpreadModel(
        model, plan.cut(), devices=places, precisions=precisions, image_shape=plan.traced.image_shape
    )
