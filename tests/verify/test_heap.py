"""Verifies a model of RepVGG's shape in a process of its own, whose heap glibc checks at every call."""

import os
import subprocess
import sys

# Without `install_narrow_convolutions` the process ends by SIGSEGV or SIGABRT (see narrow_convolutions.py).
_VERIFY = """
from tests.verify.certificates import MODELS, verified

settings = {"dataset": "synthetic", "model": f"{MODELS}:Branched", "image_size": 128}
layouts = "stages=2,accumulation=2,processes=1"
assert verified(layouts, dtypes=("float32",), updates=2, **settings).ok
"""


def test_a_network_with_narrow_strided_branches_is_verified() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _VERIFY],
        env={**os.environ, "MALLOC_CHECK_": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
