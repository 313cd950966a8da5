"""One process at a time works on a run directory."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drivetrain.errors import BadInputError


@contextmanager
def hold_lock(directory: Path) -> Iterator[None]:
    """Holds the directory's lock; the system frees it however the process ends."""
    with (directory / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInputError(
                f"--output-dir {directory} is in use by another process; wait for it or name another "
                f"directory."
            ) from None
        yield
