"""Checks Python, torch, the C++ compiler and the optional packages."""

import platform
import re
import shutil
import sysconfig
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from os import environ
from pathlib import Path

from drivetrain.doctor.finding import Finding, note, ok, problem

__all__ = ["check_compiler", "check_optional_packages", "check_python", "check_torch"]

# The compilers that torch.compile tries, in its order.
_COMPILERS = ("g++", "clang++", "c++", "cl")
_PART = re.compile(r"(>=|<)\s*(\d+(?:\.\d+)*)")
# For each optional package: what it enables, and which further packages that needs.
_OPTIONAL = {
    "tensorboard": ("--tensorboard writes TensorBoard logs", ()),
    "wandb": ("--wandb reports to Weights & Biases", ()),
    "timm": ("--model can name a Python function of yours that creates a timm model", ()),
    "onnx": ("`drivetrain export` writes ONNX files", ("onnxruntime", "onnxscript")),
}


def check_python() -> Finding:
    """The version of Python; a version that is too old fails earlier, at installation."""
    return ok("python", f"Python {platform.python_version()} ({platform.system()} {platform.machine()}).")


def check_torch() -> Finding:
    """Whether torch can be imported, and whether Drivetrain was tested with its version."""
    try:
        import torch
    except (ImportError, OSError) as error:
        why = " ".join(str(error).split())
        return problem("torch", f"torch cannot be imported ({why}); install torch{_wanted_torch()}.")
    found = str(torch.__version__)
    if not _is_within(found, _wanted_torch()):
        return note("torch", f"torch {found} is untested; Drivetrain is made for torch{_wanted_torch()}.")
    return ok("torch", f"torch {found}, within {_wanted_torch()}." if _wanted_torch() else f"torch {found}.")


def check_compiler() -> Finding:
    """Whether there is a C++ compiler: torch.compile generates C++ for CPUs, and some for accelerators."""
    named = environ.get("CXX")
    compiler = next(filter(shutil.which, [named] if named else _COMPILERS), None)
    if compiler is None:
        missing = f"CXX={named} is not a program" if named else "there is no C++ compiler"
        return note("compiler", f"{missing}, so --compile on runs uncompiled; install g++ or clang++.")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return note(
            "compiler",
            f"{compiler} is installed, but Python.h is missing, which --compile on needs on a CPU; install "
            "Python's development files.",
        )
    return ok("compiler", f"{compiler}, used by --compile on.")


def check_optional_packages() -> list[Finding]:
    """One finding per optional package: what it enables, and how to install it."""
    return [_check_package(name) for name in _OPTIONAL]


def _check_package(name: str) -> Finding:
    enables, others = _OPTIONAL[name]
    missing = [package for package in (name, *others) if find_spec(package) is None]
    if missing:
        what = "not installed" if name in missing else f"{' and '.join(missing)} not installed"
        it = "it" if len(missing) == 1 else "them"
        return ok(name, f"{what}; with {it}, {enables} (pip install {' '.join(missing)}).")
    try:
        return ok(name, f"{name} {version(name)}: {enables}.")
    except PackageNotFoundError:
        return ok(name, f"{name}: {enables}.")


def _wanted_torch() -> str:
    """The supported versions, such as `>=2.11,<2.14`; empty if Drivetrain is not installed as a package."""
    try:
        requirements: Sequence[str] = requires("drivetrain") or ()
    except PackageNotFoundError:
        return ""
    wanted = next((line for line in requirements if re.match(r"torch\b(?![-_])", line)), "")
    return ",".join(sorted((sign + number for sign, number in _PART.findall(wanted)), reverse=True))


def _is_within(found: str, wanted: str) -> bool:
    numbers = _numbers(found)
    return all(
        numbers >= _numbers(number) if sign == ">=" else numbers < _numbers(number)
        for sign, number in _PART.findall(wanted)
    )


def _numbers(text: str) -> tuple[int, ...]:
    start = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, start.group().split("."))) if start else ()
