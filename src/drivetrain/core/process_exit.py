"""Faster exit of a process that has used torch."""

import gc


def skip_last_collection() -> None:
    """Skips Python's last garbage collection, which takes half a second over the objects of torch."""
    gc.freeze()
