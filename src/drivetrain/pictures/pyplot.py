"""Imports matplotlib when it is first needed, with a backend that opens no window."""

from typing import Any


def load_pyplot() -> Any:
    """matplotlib.pyplot with the Agg backend, which only writes files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
