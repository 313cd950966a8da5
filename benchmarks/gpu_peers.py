"""ResNet-50 in the loops of other projects, on one accelerator."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpu_networks import make_work
from gpu_turns import Contender, synchronise
from torch.nn import functional as F

__all__ = ["build_lightning", "build_timm"]

WARM_UP = 3


def build_timm(*, batch: int, size: int, device: torch.device) -> Contender:
    """timm's model and optimiser, in the loop of its training script: autocast, channels_last, eager."""
    import timm  # type: ignore[import-not-found, unused-ignore]
    from timm.optim import create_optimizer_v2  # type: ignore[import-not-found, unused-ignore]

    model = timm.create_model("resnet50", num_classes=1000).to(device)
    model = model.to(memory_format=torch.channels_last).train()
    optimiser = create_optimizer_v2(model, opt="sgd", lr=0.01, momentum=0.9)
    work = make_work("resnet50", batch=batch, size=size, width=64, device=device)

    def run(steps: int) -> None:
        for _ in range(steps):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type != "cpu"):
                loss = F.cross_entropy(model(work.images), work.labels)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    return Contender(run=run, device=device, notes={"timm": timm.__version__})


class _Batches:
    """The same batch again and again, already on the device."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self._batch = (images, labels)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield self._batch


class _LightningContender(Contender):
    """Every repeat is a `fit` of its own, whose first steps are not counted."""

    def __init__(self, fit: Callable[[int], Any], *, device: torch.device, notes: dict[str, Any]) -> None:
        super().__init__(run=fit, device=device, warm_up=1, notes=notes)
        self._fit = fit

    def time_s(self, steps: int) -> float:
        """The mean seconds of some steps after the warm-up."""
        return float(self._fit(steps)) / steps


def build_lightning(*, batch: int, size: int, device: torch.device) -> Contender:
    """A LightningModule in channels_last and bf16-mixed, over batches that cost nothing."""
    import logging
    import warnings

    import lightning

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    work = make_work("resnet50", batch=batch, size=size, width=64, device=device)

    class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.network = work.model
            self.started_s = 0.0

        def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
            if index == WARM_UP:
                synchronise(device)
                self.started_s = time.perf_counter()
            return F.cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return work.optimiser()

    def fit(steps: int) -> float:
        module = Module()
        trainer = lightning.Trainer(
            max_steps=steps + WARM_UP,
            accelerator="cpu" if device.type == "cpu" else "gpu",
            devices=1,
            precision="32-true" if device.type == "cpu" else "bf16-mixed",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            benchmark=True,
        )
        trainer.fit(module, _Batches(work.images, work.labels))
        synchronise(device)
        return time.perf_counter() - module.started_s

    notes = {"lightning": lightning.__version__, "loader": "one batch that lies on the device"}
    return _LightningContender(fit, device=device, notes=notes)
