"""What is said where something changes that the bits of a run depend on."""

from typing import Any

import pytest

from drivetrain.run.environment import change_of_bits

CPU: dict[str, Any] = {
    "device_type": "cpu",
    "drivetrain": "0.1.0",
    "torch": "2.13.0",
    "processor": "A",
    "cpu_capability": "AVX2",
    "onednn_isa": "nothing",
    "threads": 4,
    "deterministic": False,
}
CUDA: dict[str, Any] = {**CPU, "device_type": "cuda", "device": "NVIDIA H200", "cudnn": "91900"}


def test_nothing_is_said_where_nothing_changed() -> None:
    assert change_of_bits(CPU, CPU) is None
    assert change_of_bits(CUDA, CUDA) is None


def test_all_that_changed_is_in_one_sentence() -> None:
    said = change_of_bits(CPU, {**CPU, "torch": "2.14.0", "threads": 1, "deterministic": True})
    assert said is not None
    assert said.startswith(
        "the run was last started with torch 2.13.0, --deterministic False and --num-threads 4, and goes on "
        "with torch 2.14.0, --deterministic True and --num-threads 1;"
    )


@pytest.mark.parametrize("name", sorted({*CPU} - {"device_type"}))
def test_each_change_on_a_cpu_counts(name: str) -> None:
    assert change_of_bits(CPU, {**CPU, name: "other"}) is not None


def test_what_counts_depends_on_the_device() -> None:
    assert change_of_bits(CUDA, {**CUDA, "threads": 1, "cpu_capability": "AVX512", "processor": "B"}) is None
    assert change_of_bits(CUDA, {**CUDA, "cudnn": "92000"}) is not None
    assert change_of_bits(CPU, CUDA) is not None


def test_what_an_earlier_version_did_not_record_is_not_compared() -> None:
    assert change_of_bits({"torch": "2.13.0", "threads": 4}, CPU) is None
    assert change_of_bits({"torch": "2.13.0", "threads": 2}, CPU) is not None
