"""Where compiled code is kept: a folder for each kind of processor, compiler, torch and number of threads.

torch (2.11 to 2.13) finds compiled graphs again without asking how wide the vectors of the processor are, and
generated code has that width and the number of threads in it. Taken over by another processor, it writes past
the end of its buffers. A home directory that unlike machines share is enough for that.
"""

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from drivetrain.core.cache_folder import cache_folder
from drivetrain.devices.processor import read_processor

__all__ = [
    "CACHE_VARIABLE",
    "TRITON_VARIABLE",
    "code_key",
    "code_marks",
    "cpp_compiler",
    "use_code_folder",
    "using_code_folder",
]

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
TRITON_VARIABLE = "TRITON_CACHE_DIR"
# What narrows the instructions of ATen, of generated code and of oneDNN.
_NARROWING = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_KEY = re.compile(r"drivetrain-[a-z0-9_]+-\d+threads-[0-9a-f]{16}")
_DESCRIPTION = "made-for.json"
_KEPT_UNUSED_S = 180 * 24 * 3600.0
_ANSWERS_WITHIN_S = 60.0


def use_code_folder() -> Path:
    """Has torch's compiler keep its work in the folder of this process's key, and returns that folder.

    A folder that the user has named gets one for each key, too.
    """
    folder = _of_key(_named_by_user() or _usual_place())
    os.environ[CACHE_VARIABLE] = str(folder)
    # torch itself names triton's folder, for the processes that this one starts.
    if os.environ.get(TRITON_VARIABLE):
        os.environ[TRITON_VARIABLE] = str(_of_key(Path(os.environ[TRITON_VARIABLE])))
    with suppress(OSError):
        _mark_as_used(folder)
    return folder


@contextmanager
def using_code_folder() -> Iterator[None]:
    """`use_code_folder` for the time of the block: later, another number of threads may compile."""
    before = {name: os.environ.get(name) for name in (CACHE_VARIABLE, TRITON_VARIABLE)}
    use_code_folder()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _mark_as_used(folder: Path) -> None:
    """A new folder says what it is for; its old neighbours make room for it."""
    description = folder / _DESCRIPTION
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with description.open("x") as file:
            file.write(json.dumps(code_marks(), indent=2) + "\n")
    except FileExistsError:
        description.touch()
        return
    if _KEY.fullmatch(folder.name):
        _remove_unused(folder.parent)


def _remove_unused(parent: Path) -> None:
    for description in parent.glob(f"*/{_DESCRIPTION}"):
        folder, unused_s = description.parent, time.time() - description.stat().st_mtime
        if unused_s > _KEPT_UNUSED_S and _KEY.fullmatch(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def code_key() -> str:
    """The name of the only folder whose code fits this process."""
    marks = code_marks()
    digest = hashlib.sha256(json.dumps(marks, sort_keys=True).encode()).hexdigest()[:16]
    vectors = re.sub(r"\W+", "_", marks["vectors"].lower())
    return f"drivetrain-{vectors}-{marks['threads']}threads-{digest}"


def code_marks() -> dict[str, Any]:
    """All that compiled code may depend on, beside what is compiled."""
    processor = read_processor()
    return {
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "narrowed": {name: os.environ[name] for name in _NARROWING if os.environ.get(name)},
        "processor": processor.name,
        "features": " ".join(sorted(processor.features)),
        "machine": [platform.machine(), platform.system(), *platform.libc_ver()],
        "threads": torch.get_num_threads(),
        "torch": [str(torch.__version__), str(torch.version.git_version)],
        "python": [platform.python_version(), str(sys.implementation.cache_tag)],
        "compiler": _version_of(cpp_compiler()),
        "accelerator": _accelerator_in_use(),
    }


def cpp_compiler() -> str:
    """The C++ compiler that torch calls."""
    return os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")


def _named_by_user() -> Path | None:
    """What the variable says, unless torch has put its own default there, as importing its compiler does."""
    named = Path(os.environ.get(CACHE_VARIABLE, ""))
    is_default = named.parent == Path(tempfile.gettempdir()) and named.name.startswith("torchinductor_")
    return None if is_default or not named.name else named


def _usual_place() -> Path:
    return (cache_folder() or Path(tempfile.gettempdir(), "drivetrain")) / "compiled"


def _of_key(path: Path) -> Path:
    """The key's folder in a named one; where a parent process has named its own, in that one's place."""
    parts = path.absolute().parts
    own = [index for index, part in enumerate(parts) if _KEY.fullmatch(part)]
    at = own[0] if own else len(parts)
    return Path(*parts[:at], code_key(), *parts[at + 1 :])


@cache
def _version_of(compiler: str) -> str:
    """What a compiler says of itself, and what it is called with, as a hash; empty where there is none."""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        words = shlex.split(compiler, posix=sys.platform != "win32")
        # The last program counts: before it may come one that keeps results, as ccache does.
        programs = [path for word in words if not word.startswith("-") and (path := shutil.which(word))]
        if programs:
            asked = [programs[-1], "-v"]
            said = subprocess.run(asked, capture_output=True, check=False, timeout=_ANSWERS_WITHIN_S).stderr
            marks = str(Path(programs[-1]).resolve()) + " ".join(words[1:])
            return hashlib.sha256(marks.encode() + said).hexdigest()[:16]
    return ""


def _accelerator_in_use() -> str:
    """The device that this process computes on; none is started for the sake of its name."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind is None:
        return ""
    module = torch.get_device_module(kind)
    if not getattr(module, "is_initialized", lambda: True)():
        return ""
    versions = [str(getattr(torch.version, name, None) or "") for name in ("cuda", "hip", "xpu")]
    return " ".join([kind.type, str(getattr(module, "get_device_name", str)()), *versions]).strip()
