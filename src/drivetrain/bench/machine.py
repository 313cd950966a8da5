"""What a measurement says of the machine it was made on."""

import os
import platform
from typing import Any

__all__ = ["describe_machine"]


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """The device, the cores beside it, and the versions that computed."""
    import torch

    from drivetrain.cluster.devices import choose_device

    chosen = choose_device(device)
    return {
        "device" if not chosen.is_cpu else "cpu": chosen.description,
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
