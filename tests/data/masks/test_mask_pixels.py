"""Pixels that were decoded once are given to one of the threads that ask for them."""

import numpy as np

from drivetrain.data.masks.mask_pixels import HeldPixels
from drivetrain.data.masks.masked_images import cut_out


class _Overtaken(dict[str, object]):
    """Another thread takes an entry right after this one has seen it."""

    def __contains__(self, name: object) -> bool:
        return self.pop(str(name), self) is not self


def test_an_object_taken_by_another_thread_is_no_black_mask() -> None:
    held = HeldPixels()
    held._objects = _Overtaken()  # type: ignore[assignment]
    one = cut_out(np.eye(4, dtype=bool))
    held.hold_object("mask", one)
    assert held.take_object("mask") == (True, one)
    assert held.take_object("mask") == (False, None)
    assert held.bytes == 0


def test_a_black_mask_is_held_too() -> None:
    held = HeldPixels()
    held.hold_object("mask", None)
    assert held.take_object("mask") == (True, None)
    assert held.take_object("mask") == (False, None)
