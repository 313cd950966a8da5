"""The cache folder of compiled code: one per processor, compiler, version of torch and number of threads.

torch 2.11 to 2.13 reuses compiled graphs without checking the vector width of the processor. Generated code
contains that width and the number of threads; on another processor it writes past the end of its buffers. A
home directory shared by different machines is enough to trigger this.
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
# Variables that restrict the instructions of ATen, of generated code and of oneDNN.
_NARROWING = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_KEY = re.compile(r"drivetrain-[a-z0-9_]+-\d+threads-[0-9a-f]{16}")
_DESCRIPTION = "made-for.json"
# Every update of torch, driver or compiler makes a new folder; old ones would pile up in the cache.
_KEPT_UNUSED_S = 180 * 24 * 3600.0
# A compiler that does not even print its version must not hold up the run; its version is then left out.
_ANSWERS_WITHIN_S = 60.0


def use_code_folder() -> Path:
    """Makes torch.compile use the cache folder that fits this process, and returns it.

    If the user has named a cache folder, the fitting one is made inside it.
    """
    folder = _of_key(_named_by_user() or _usual_place())
    os.environ[CACHE_VARIABLE] = str(folder)
    # torch sets the folder of triton as well, and child processes inherit it.
    if os.environ.get(TRITON_VARIABLE):
        os.environ[TRITON_VARIABLE] = str(_of_key(Path(os.environ[TRITON_VARIABLE])))
    with suppress(OSError):
        _mark_as_used(folder)
    return folder


@contextmanager
def using_code_folder() -> Iterator[None]:
    """`use_code_folder` inside the block only: later the process may use another number of threads."""
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
    """Describes a new folder in a file and removes old unused ones; touches the file of a known one."""
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
    """The name of the folder whose compiled code fits this process."""
    marks = code_marks()
    digest = hashlib.sha256(json.dumps(marks, sort_keys=True).encode()).hexdigest()[:16]
    vectors = re.sub(r"\W+", "_", marks["vectors"].lower())
    return f"drivetrain-{vectors}-{marks['threads']}threads-{digest}"


def code_marks() -> dict[str, Any]:
    """Everything that compiled code may depend on besides the model."""
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
    """The C++ compiler that torch.compile calls."""
    return os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")


def _named_by_user() -> Path | None:
    """The folder that the user named; a default that torch's compiler sets on import does not count."""
    named = Path(os.environ.get(CACHE_VARIABLE, ""))
    is_default = named.parent == Path(tempfile.gettempdir()) and named.name.startswith("torchinductor_")
    return None if is_default or not named.name else named


def _usual_place() -> Path:
    return (cache_folder() or Path(tempfile.gettempdir(), "drivetrain")) / "compiled"


def _of_key(path: Path) -> Path:
    """The folder of this key inside `path`; replaces the key folder that a parent process has set."""
    parts = path.absolute().parts
    own = [index for index, part in enumerate(parts) if _KEY.fullmatch(part)]
    at = own[0] if own else len(parts)
    return Path(*parts[:at], code_key(), *parts[at + 1 :])


@cache
def _version_of(compiler: str) -> str:
    """A hash of the version and options of a compiler; empty if there is none."""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        words = shlex.split(compiler, posix=sys.platform != "win32")
        # The last program is the compiler; a wrapper such as ccache may come before it.
        programs = [path for word in words if not word.startswith("-") and (path := shutil.which(word))]
        if programs:
            asked = [programs[-1], "-v"]
            said = subprocess.run(asked, capture_output=True, check=False, timeout=_ANSWERS_WITHIN_S).stderr
            marks = str(Path(programs[-1]).resolve()) + " ".join(words[1:])
            return hashlib.sha256(marks.encode() + said).hexdigest()[:16]
    return ""


def _accelerator_in_use() -> str:
    """The accelerator this process uses; empty if none is initialised, as asking would start it."""
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind is None:
        return ""
    module = torch.get_device_module(kind)
    if not getattr(module, "is_initialized", lambda: True)():
        return ""
    versions = [str(getattr(torch.version, name, None) or "") for name in ("cuda", "hip", "xpu")]
    return " ".join([kind.type, str(getattr(module, "get_device_name", str)()), *versions]).strip()
