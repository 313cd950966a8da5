"""A trained model over several devices of one process, for predictions: each stage on the device it had."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.cluster.devices import Device
from drivetrain.pipeline.cut import Cut
from drivetrain.pipeline.stage_plan import plan_stages
from drivetrain.recipe.layout import devices_per_replica
from drivetrain.recipe.schema import Recipe

__all__ = ["SpreadModel", "spread_over_devices"]


class SpreadModel(nn.Module):
    """Stands in for `model`: has its weights and its state, and gives its output on the images' device."""

    def __init__(self, model: nn.Module, cut: Cut, *, devices: Sequence[torch.device]) -> None:
        super().__init__()
        self.whole = model
        self._stages, self._devices = cut.stages, devices
        self._images, self._output = cut.input, cut.output
        for stage, device in zip(cut.stages, devices, strict=True):
            stage.to(device=device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        values = {self._images: images}
        for stage, device in zip(self._stages, self._devices, strict=True):
            outputs = stage(
                *(values[name].to(device, non_blocking=True) for name in stage.stage_facts.inputs)
            )
            values.update(zip(stage.stage_facts.outputs, outputs, strict=True))
        return values[self._output].to(images.device)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The model's own, wherever its stages lie."""
        state: dict[str, Any] = self.whole.state_dict(*args, **kwargs)
        return state

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own."""
        return self.whole.load_state_dict(*args, **kwargs)


def spread_over_devices(
    recipe: Recipe,
    model: nn.Module,
    *,
    device: Device,
    image_shape: tuple[int, int, int],
    devices: Sequence[torch.device] | None = None,
) -> nn.Module:
    """The model on as many devices as a replica had, where there are so many; else on `device` in one piece.

    `devices` names them, one for each device of a replica.
    """
    wanted = devices_per_replica(recipe)
    if devices is None:
        count = 0 if device.is_cpu else torch.accelerator.device_count()
        devices = [torch.device(device.torch_device.type, index) for index in range(min(count, wanted))]
    if wanted == 1 or len(devices) < wanted:
        return model.to(device=device.torch_device).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
    # The order of micro-batches says nothing here, only where the stages lie.
    cost_recipe = recipe.model_copy(update={"pipeline_schedule": "sequential"})
    plan = plan_stages(cost_recipe, model, image_shape=image_shape, micro=1, accumulation=1)
    assert plan is not None, "more than one device means more than one stage"
    return SpreadModel(model, plan.cut(), devices=[devices[home] for home in plan.device_of])
