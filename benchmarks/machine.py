"""What a committed measurement says of the machine it was made on."""

from drivetrain.bench.machine import describe_machine

__all__ = ["describe_machine"]
