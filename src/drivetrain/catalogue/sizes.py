"""Which image sizes a model can take, and what becomes of the others."""


def padded_size(size: int, *, depth: int) -> int:
    """The side an image is padded to by a network that halves it `depth` times."""
    before, after = missing_to_multiple(size, multiple=2**depth)
    return before + size + after


def missing_to_multiple(size: int, *, multiple: int) -> tuple[int, int]:
    """Pixels before and after one dimension that make it a multiple, the odd one after."""
    missing = -size % multiple
    return missing // 2, missing - missing // 2


def nearest_sizes(size: int, *, smallest: int, step: int) -> tuple[int, int]:
    """The largest of smallest, smallest + step, ... that is below `size`, and the one after it."""
    below = smallest + (size - smallest) // step * step
    return below, below + step
