"""The random numbers of samples."""

import numpy as np

from drivetrain.data.augment.technique import draw_per_sample
from tests.data.augment.helpers import in_pass, numbers


def test_a_draw_belongs_to_its_sample_whoever_else_is_asked_for() -> None:
    indices = numbers(100)
    all_at_once = draw_per_sample(3, "flip", passes=in_pass(2, indices), indices=indices)
    backwards = draw_per_sample(3, "flip", passes=in_pass(2, indices), indices=indices[::-1])
    alone = draw_per_sample(3, "flip", passes=np.array([2]), indices=np.array([17]))
    assert np.array_equal(backwards[::-1], all_at_once)
    assert alone[0] == all_at_once[17]


def test_passes_may_be_mixed_in_any_shape() -> None:
    indices = numbers(12).reshape(2, 3, 2)
    passes = numbers(12).reshape(2, 3, 2) % 3
    drawn = draw_per_sample(3, "flip", passes=passes, indices=indices)
    for place in np.ndindex(2, 3, 2):
        alone = draw_per_sample(3, "flip", passes=passes[place].reshape(1), indices=indices[place].reshape(1))
        assert drawn[place] == alone[0]


def test_seed_purpose_and_pass_each_change_every_draw() -> None:
    indices = numbers(100)
    drawn = draw_per_sample(3, "flip", passes=in_pass(0, indices), indices=indices)
    others = (
        draw_per_sample(4, "flip", passes=in_pass(0, indices), indices=indices),
        draw_per_sample(3, "crop top", passes=in_pass(0, indices), indices=indices),
        draw_per_sample(3, "flip", passes=in_pass(1, indices), indices=indices),
    )
    for other in others:
        assert not np.any(other == drawn)
