"""The recipes that self_configured.py compares with, each in one function; prints a JSON line at the end.

    python benchmarks/self_configured_peers.py timm|one-cycle|smp --data-dir DIR --seconds 600

Every recipe times its first updates and then trains for as many epochs as fit into the seconds, counted from
the start of the process, with one validation at the end.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

_SIDE_PX, _SCALED_PX = 128, 144
_BATCH = 64
_TIMED_UPDATES, _WARM_UPS = 8, 3
# Kept for the validation and for the scatter of the timing.
_RESERVE_SHARE = 0.05
_SUFFIXES = (".jpg", ".jpeg", ".png")

Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line says, and when the process began."""

    data_dir: Path
    device: torch.device
    ends_s: float
    seed: int


def epochs_that_fit(update: Callable[[int], None], *, asked: Asked, updates: int, validation_s: float) -> int:
    """Times some updates, and the epochs for which the seconds left are enough."""
    for index in range(_WARM_UPS):
        update(index)
    _synchronise(asked.device)
    began_s = time.perf_counter()
    for index in range(_TIMED_UPDATES):
        update(index)
    _synchronise(asked.device)
    epoch_s = (time.perf_counter() - began_s) / _TIMED_UPDATES * updates
    left_s = (asked.ends_s - time.time()) * (1 - _RESERVE_SHARE) - validation_s
    return max(1, int(left_s / epoch_s))


def _synchronise(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


@torch.inference_mode()
def accuracy_of(model: nn.Module, batches: Batches, *, device: torch.device) -> float:
    """The share of images whose class is predicted."""
    model.eval()
    right = total = 0
    for images, labels in batches:
        predicted = model(_on(images, device)).argmax(1).cpu()
        right += int((predicted == labels).sum())
        total += len(labels)
    return right / total


def _on(images: Tensor, device: torch.device) -> Tensor:
    return images.to(device).contiguous(memory_format=torch.channels_last)


# ---- timm: its factories for model, data, mixing, optimiser, schedule and average ----


def train_timm(asked: Asked) -> dict[str, Any]:
    """The parts and values of timm's training documentation, with a ResNet-18 for a small data set."""
    import timm  # type: ignore[import-not-found, unused-ignore]
    from timm.data import (  # type: ignore[import-not-found, unused-ignore]
        Mixup,
        create_dataset,
        create_loader,
    )
    from timm.loss import SoftTargetCrossEntropy  # type: ignore[import-not-found, unused-ignore]
    from timm.optim import create_optimizer_v2  # type: ignore[import-not-found, unused-ignore]
    from timm.scheduler import create_scheduler_v2  # type: ignore[import-not-found, unused-ignore]
    from timm.utils import ModelEmaV3  # type: ignore[import-not-found, unused-ignore]

    parts = {name: create_dataset("", root=str(asked.data_dir), split=name) for name in ("train", "val")}
    classes = len(parts["train"].reader.class_to_idx)
    shared = {
        "input_size": (3, _SIDE_PX, _SIDE_PX),
        "batch_size": _BATCH,
        "use_prefetcher": False,
        "num_workers": 2,
        "persistent_workers": True,
        "device": asked.device,
    }
    augmented = {"is_training": True, "auto_augment": "rand-m7-mstd0.5-inc1", "re_prob": 0.25}
    train = create_loader(parts["train"], **shared, **augmented)
    validation = create_loader(parts["val"], is_training=False, crop_pct=0.95, **shared)
    model = timm.create_model("resnet18", num_classes=classes, drop_path_rate=0.05).to(asked.device)
    model = model.to(memory_format=torch.channels_last)
    optimiser = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    mixing = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=classes)
    loss_of = SoftTargetCrossEntropy()
    average = ModelEmaV3(model, decay=0.998, use_warmup=True)

    def step(images: Tensor, labels: Tensor) -> None:
        model.train()
        images, labels = mixing(_on(images, asked.device), labels.to(asked.device))
        with torch.autocast(asked.device.type, torch.bfloat16, enabled=asked.device.type != "cpu"):
            loss = loss_of(model(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    state = {name: value.clone() for name, value in model.state_dict().items()}
    batches = _forever(train)
    epochs = epochs_that_fit(
        lambda _: step(*next(batches)), asked=asked, updates=len(train), validation_s=10.0
    )
    model.load_state_dict(state)
    optimiser = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    average = ModelEmaV3(model, decay=0.998, use_warmup=True)
    schedule, epochs = create_scheduler_v2(
        optimiser, sched="cosine", num_epochs=epochs, warmup_epochs=min(5, epochs // 10), warmup_lr=1e-5
    )
    update = 0
    for epoch in range(epochs):
        for images, labels in train:
            step(images, labels)
            update += 1
            average.update(model, step=update)
        schedule.step(epoch + 1)
    score = accuracy_of(average.module, validation, device=asked.device)
    return {"score": score, "epochs": epochs, "timm": timm.__version__}


def _forever(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from batches


# ---- by hand: one cycle of AdamW, images in memory ----


def train_one_cycle(asked: Asked) -> dict[str, Any]:
    """Crops, flips, brightness, mixup, AdamW with one cycle: a page of code with a ResNet-18."""
    from drivetrain.models.zoo.resnet import resnet18

    images, labels, names = _read_folder(asked.data_dir / "train", side_px=_SCALED_PX)
    val_images, val_labels, _ = _read_folder(asked.data_dir / "val", side_px=_SCALED_PX)
    model = resnet18(num_classes=len(names), channels=3)
    model.to(asked.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    generator = torch.Generator().manual_seed(asked.seed)
    updates = len(images) // _BATCH
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def make(epochs: int) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.OneCycleLR]:
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
        total = max(2, epochs * updates)
        return optimiser, torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=total)

    def step(chosen: Tensor, optimiser: torch.optim.Optimizer) -> None:
        model.train()
        batch = _on(_augmented(images[chosen], generator), asked.device)
        share = float(np.random.beta(0.2, 0.2))
        other = torch.randperm(len(chosen), generator=generator)
        mixed = batch * share + batch[other.to(asked.device)] * (1 - share)
        mine, theirs = (labels[index].to(asked.device) for index in (chosen, chosen[other]))
        with torch.autocast(asked.device.type, torch.bfloat16, enabled=asked.device.type != "cpu"):
            logits = model(mixed)
            loss = share * _smooth(logits, mine) + (1 - share) * _smooth(logits, theirs)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    trial, _ = make(1)
    epochs = epochs_that_fit(
        lambda index: step(torch.arange(_BATCH) + index % updates * _BATCH, trial),
        asked=asked,
        updates=updates,
        validation_s=5.0,
    )
    model.load_state_dict(state)
    optimiser, schedule = make(epochs)
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=generator)[: updates * _BATCH]
        for chosen in torch.split(order, _BATCH):
            step(chosen, optimiser)
            schedule.step()
    edge = (_SCALED_PX - _SIDE_PX) // 2
    centre = val_images[:, :, edge : edge + _SIDE_PX, edge : edge + _SIDE_PX]
    batches = zip(torch.split(_normalised(centre), _BATCH), torch.split(val_labels, _BATCH), strict=True)
    return {"score": accuracy_of(model, batches, device=asked.device), "epochs": epochs}


def _smooth(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, label_smoothing=0.1)


def _read_folder(folder: Path, *, side_px: int) -> tuple[Tensor, Tensor, list[str]]:
    """All images of class folders, the middle square of each, as bytes."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    images, labels = [], []
    for label, name in enumerate(names):
        for path in sorted((folder / name).iterdir()):
            if path.suffix.lower() not in _SUFFIXES:
                continue
            with Image.open(path) as opened:
                image = opened.convert("RGB")
                scale = side_px / min(image.size)
                image = image.resize((round(image.width * scale), round(image.height * scale)))
                left, top = (image.width - side_px) // 2, (image.height - side_px) // 2
                images.append(np.asarray(image.crop((left, top, left + side_px, top + side_px))))
            labels.append(label)
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2), torch.tensor(labels), names


def _augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Random crops and flips, one per image, and brightness."""
    room = images.shape[2] - _SIDE_PX + 1
    found = []
    for image in images:
        top, left, mirrored = (
            int(torch.randint(high, (1,), generator=generator)) for high in (room, room, 2)
        )
        crop = image[:, top : top + _SIDE_PX, left : left + _SIDE_PX]
        found.append(crop.flip(2) if mirrored else crop)
    brightness = 0.6 + 0.8 * torch.rand(len(images), 1, 1, 1, generator=generator)
    return _normalised((torch.stack(found).float() * brightness).clamp_(0, 255))


def _normalised(images: Tensor) -> Tensor:
    return (images.float() / 255 - 0.45) / 0.28


# ---- segmentation_models_pytorch: its U-Net with the losses of its examples ----

_IGNORED = 11


def train_smp(asked: Asked) -> dict[str, Any]:
    """smp's U-Net on a ResNet-34 from scratch: Adam, Dice and cross-entropy, crops and flips."""
    import segmentation_models_pytorch as smp  # type: ignore[import-not-found, unused-ignore]

    train, validation = (_read_masks(asked.data_dir / part) for part in ("train", "val"))
    classes = int(train[1].max()) + 1
    model = smp.Unet("resnet34", encoder_weights=None, in_channels=3, classes=classes).to(asked.device)
    model = model.to(memory_format=torch.channels_last)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    dice = smp.losses.DiceLoss("multiclass", ignore_index=_IGNORED)
    images, masks = (part.to(asked.device) for part in train)
    batch = 8
    updates = max(1, len(images) // batch)

    def step(chosen: Tensor, optimiser: torch.optim.Optimizer) -> None:
        model.train()
        inputs, labels = _cropped(images[chosen], masks[chosen])
        with torch.autocast(asked.device.type, torch.bfloat16, enabled=asked.device.type != "cpu"):
            logits = model(_on(_normalised(inputs), asked.device)).float()
        loss = dice(logits, labels) + F.cross_entropy(logits, labels, ignore_index=_IGNORED)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    trial = torch.optim.Adam(model.parameters(), lr=1e-3)
    epochs = epochs_that_fit(
        lambda index: step(torch.arange(batch) + index % updates * batch, trial),
        asked=asked,
        updates=updates,
        validation_s=3.0,
    )
    model.load_state_dict(state)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=epochs * updates)
    for _ in range(epochs):
        for chosen in torch.split(torch.randperm(len(images))[: updates * batch], batch):
            step(chosen, optimiser)
            schedule.step()
    return {"score": _mean_iou(model, validation, classes=classes, device=asked.device), "epochs": epochs}


def _read_masks(folder: Path) -> tuple[Tensor, Tensor]:
    images, masks = [], []
    for path in sorted((folder / "images").iterdir()):
        images.append(np.asarray(Image.open(path).convert("RGB")))
        masks.append(np.asarray(Image.open(folder / "masks" / f"{path.stem}.png")))
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return pixels, torch.from_numpy(np.stack(masks)).long()


def _cropped(images: Tensor, masks: Tensor, *, side_px: int = 320) -> tuple[Tensor, Tensor]:
    """The same random crop and flip for a whole batch."""
    height, width = (min(side_px, length // 32 * 32) for length in images.shape[2:])
    top = random.randint(0, images.shape[2] - height)
    left = random.randint(0, images.shape[3] - width)
    images = images[:, :, top : top + height, left : left + width]
    masks = masks[:, top : top + height, left : left + width]
    return (images.flip(3), masks.flip(2)) if random.random() < 0.5 else (images, masks)


@torch.inference_mode()
def _mean_iou(model: nn.Module, part: tuple[Tensor, Tensor], *, classes: int, device: torch.device) -> float:
    """The mean over the classes but the ignored one, whose pixels do not count either."""
    model.eval()
    counts = torch.zeros(classes, classes, dtype=torch.int64)
    for image, mask in zip(*part, strict=True):
        rows, columns = (-length % 32 for length in mask.shape)
        padded = F.pad(_normalised(image[None]), (0, columns, 0, rows), mode="reflect")
        logits = model(_on(padded, device))[0, :, : mask.shape[0], : mask.shape[1]].float().cpu()
        logits[_IGNORED] = -torch.inf
        counted = mask != _IGNORED
        pairs = mask[counted] * classes + logits.argmax(0)[counted]
        counts += torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    both = counts.diag()
    scores = both / (counts.sum(0) + counts.sum(1) - both).clamp(min=1)
    named = [index for index in range(classes) if index != _IGNORED]
    return float(scores[named].mean())


RECIPES = {"timm": train_timm, "one-cycle": train_one_cycle, "smp": train_smp}


def main() -> None:
    began_s = time.time()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    np.random.seed(args.seed)
    asked = Asked(
        data_dir=args.data_dir,
        device=torch.device(args.device),
        ends_s=began_s + args.seconds,
        seed=args.seed,
    )
    print(json.dumps(RECIPES[args.recipe](asked)))


if __name__ == "__main__":
    main()
