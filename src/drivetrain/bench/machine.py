"""What a measurement says of the machine it was made on."""

import os
import platform
from typing import Any

__all__ = ["describe_machine"]


def describe_machine(device: str = "cpu") -> dict[str, Any]:
    """The device, the cores beside it, and the versions that computed.

    How many threads were in use is a setting: ranks of one machine share its cores out.
    """
    import torch

    from drivetrain.devices.device import choose_device
    from drivetrain.devices.processor import read_processor

    chosen = choose_device(device)
    return {
        **({"cpu": read_processor().name} if chosen.is_cpu else {"device": chosen.description}),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
