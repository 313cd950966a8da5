"""How a process of this package ends."""

import gc


def skip_last_collection() -> None:
    """For the end of a process: Python would look through all that torch has made, half a second long."""
    gc.freeze()
