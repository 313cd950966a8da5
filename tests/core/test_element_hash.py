"""Random numbers per element."""

import subprocess
import sys

import numpy as np
import torch
from scipy.stats import kstest

from drivetrain.core.element_hash import draw_gaussian, draw_levels, mix_words, signed
from drivetrain.core.randomness import draw_words, mix64
from tests.deadlines import HANG_S

KEYS = torch.tensor([0, 7, signed(2**64 - 3)])


def test_words_are_those_of_the_host() -> None:
    words = np.array([0, 1, 2**63 + 5, 2**64 - 1], dtype=np.uint64)
    found = mix_words(torch.from_numpy(words.view(np.int64)))
    assert np.array_equal(found.numpy().view(np.uint64), mix64(words))


def test_levels_are_the_quarters_of_the_words_of_the_key() -> None:
    levels = draw_levels(KEYS, 10)
    assert levels.shape == (3, 10)
    for row, key in zip(levels, KEYS.tolist(), strict=True):
        words = draw_words(key, np.arange(3, dtype=np.int64))
        assert np.array_equal(row.numpy(), words.view(np.int16)[:10])


def test_a_row_depends_on_its_key_alone() -> None:
    whole = draw_gaussian(KEYS, 1001)
    assert torch.equal(draw_gaussian(KEYS[2:], 1001)[0], whole[2])
    assert torch.equal(draw_gaussian(KEYS, 500), whole[:, :500])
    assert not torch.equal(whole[0], whole[1])


def test_gaussian_numbers_are_normal() -> None:
    numbers = draw_gaussian(torch.arange(20), 10_000).double()
    assert numbers.dtype == torch.float64
    assert kstest(numbers.flatten().numpy(), "norm").statistic < 0.004
    assert kstest(numbers.flatten().numpy() * 1.05, "norm").statistic > 0.006
    assert abs(numbers.pow(4).mean().item() - 3) < 0.1
    assert numbers.abs().max() < 4.4
    neighbours = torch.corrcoef(torch.stack([numbers[:, :-1].flatten(), numbers[:, 1:].flatten()]))
    assert abs(neighbours[0, 1].item()) < 0.01


def test_a_run_starts_without_importing_the_compiler() -> None:
    check = "import sys, drivetrain.run.train; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=HANG_S).returncode == 0
