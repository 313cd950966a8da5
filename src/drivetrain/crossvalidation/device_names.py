"""The devices that `--device` leaves open, for processes that each take their own."""

import torch

__all__ = ["device_names"]


def device_names(name: str) -> list[str]:
    """Every accelerator where `auto` or only its kind is asked for, else the one device meant."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None or name not in ("auto", accelerator.type):
        return [name]
    return [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
