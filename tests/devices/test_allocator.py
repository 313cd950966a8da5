"""Freed memory of a process of its own: kept, given back at once, or given back when asked."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")

SCRIPT = """
import re
import sys

import torch

from drivetrain.devices import backend_settings as allocator

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

getattr(allocator, sys.argv[1])()
before = resident()
tensors = [torch.ones(2**20) for _ in range(50)]
small = [torch.ones(3) for _ in tensors]
held = resident() - before
del tensors
freed = resident() - before
allocator.give_back_freed_memory()
print(held, freed, resident() - before)
"""


def _resident(mode: str) -> tuple[int, ...]:
    """MiB more than before 200 MiB of tensors: with them, without them, and after a request."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


def test_kept_memory_stays_until_it_is_given_back() -> None:
    held, freed, given_back = _resident("keep_freed_memory")
    assert held >= 195
    assert freed >= 195
    assert given_back < 60


def test_large_tensors_go_back_at_once() -> None:
    held, freed, _ = _resident("give_back_large_tensors")
    assert held >= 195
    assert freed < 30
