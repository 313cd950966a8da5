"""matplotlib, without a window, when it is first needed."""

from typing import Any


def load_pyplot() -> Any:
    """The plotting module, set up to write files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
