import builtins
import sys
import sysconfig
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch

from drivetrain.doctor import versions
from drivetrain.doctor.versions import check_compiler, check_optional_packages, check_python, check_torch


def test_python_and_torch_of_this_machine() -> None:
    assert check_python().status == "ok"
    found = check_torch()
    assert found.status == "ok"
    assert ">=2.11,<2.14" in found.sentence


def test_without_metadata_of_the_package_there_is_no_range_to_speak_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "requires", fail)
    assert check_torch().sentence == f"torch {torch.__version__}."


def test_a_torch_outside_the_range_is_untried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "requires", lambda name: ["torchaudio>=1", "torch<2.3,>=2.1", "numpy"])
    found = check_torch()
    assert found.status == "note"
    assert "torch>=2.1,<2.3" in found.sentence


def test_without_torch_nothing_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def failing(name: str, *args: Any, **options: Any) -> Any:
        if name == "torch":
            raise OSError("libtorch.so:\n no such file")
        return real(name, *args, **options)

    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(builtins, "__import__", failing)
    found = check_torch()
    assert found.status == "problem"
    assert "(libtorch.so: no such file)" in found.sentence


@pytest.mark.parametrize(
    ("found", "within"),
    [("2.11.0", True), ("2.13.1+cu130", True), ("2.14.0a0+git1", False), ("2.9.1", False), ("2.11rc1", True)],
)
def test_ranges(found: str, within: bool) -> None:
    assert versions._is_within(found, ">=2.11,<2.14") == within


def test_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert check_compiler().status == "note"
    program = tmp_path / "clang++"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert "Python.h" in check_compiler().sentence
    (tmp_path / "Python.h").write_text("")
    assert (check_compiler().status, check_compiler().sentence) == ("ok", "clang++, used by --compile on.")
    monkeypatch.setenv("CXX", "nothing++")
    assert "CXX=nothing++ is not a program" in check_compiler().sentence


def test_packages_are_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "find_spec", lambda name: None if name == "wandb" else object())
    monkeypatch.setattr(versions, "version", lambda name: "1.0")
    found = {finding.topic: finding for finding in check_optional_packages()}
    assert {finding.status for finding in found.values()} == {"ok"}
    assert found["wandb"].sentence.endswith("(pip install wandb).")
    assert found["tensorboard"].sentence == "tensorboard 1.0: --tensorboard writes TensorBoard logs."


def test_what_a_format_needs_beside_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "find_spec", lambda name: None if name.startswith("onnx") else object())
    monkeypatch.setattr(versions, "version", lambda name: "1.0")
    found = {finding.topic: finding.sentence for finding in check_optional_packages()}
    assert found["onnx"].endswith("(pip install onnx onnxruntime onnxscript).")
    monkeypatch.setattr(versions, "find_spec", lambda name: None if name == "onnxscript" else object())
    found = {finding.topic: finding.sentence for finding in check_optional_packages()}
    assert found["onnx"].startswith("onnxscript not installed; with it")
    monkeypatch.setattr(
        versions, "find_spec", lambda name: None if name.startswith("onnx") and name != "onnx" else 1
    )
    found = {finding.topic: finding.sentence for finding in check_optional_packages()}
    assert found["onnx"].startswith("onnxruntime and onnxscript not installed; with them")
