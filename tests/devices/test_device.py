from types import SimpleNamespace

import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device, choose_device


def test_auto_chooses_and_says_what() -> None:
    device = choose_device("auto")
    assert device.reason.startswith("auto")
    assert device.is_cpu != torch.accelerator.is_available()


def test_the_cpu_answers_every_question() -> None:
    device = choose_device("cpu")
    assert 0 < device.free_memory_bytes <= device.total_memory_bytes
    assert device.peak_memory_bytes > 0
    assert device.wide_dtype == torch.float64
    assert device.description.endswith(("1 thread", "threads"))
    device.synchronise()


def test_the_peak_of_an_accelerator_can_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    module = SimpleNamespace(
        empty_cache=lambda: called.append("cache"), reset_peak_memory_stats=lambda: called.append("peak")
    )
    monkeypatch.setattr(Device, "_module", module)
    Device(torch_device=torch.device("cuda"), reason="test").forget_peak_memory()
    assert called == ["cache", "peak"]
    choose_device("cpu").forget_peak_memory()
    assert called == ["cache", "peak"]


def test_allocated_memory_is_counted_on_accelerators_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu").allocated_memory_bytes is None
    device = Device(torch_device=torch.device("cuda:1"), reason="")
    asked: list[torch.device] = []

    def count(where: torch.device) -> int:
        asked.append(where)
        return 12

    monkeypatch.setattr(Device, "_module", SimpleNamespace(memory_allocated=count))
    assert device.allocated_memory_bytes == 12
    assert asked == [torch.device("cuda:1")]
    monkeypatch.setattr(Device, "_module", SimpleNamespace())
    assert device.allocated_memory_bytes is None


def test_generators_are_set() -> None:
    device = choose_device("cpu")
    device.seed_generators(5)
    first = torch.rand(3)
    device.seed_generators(5)
    assert torch.equal(torch.rand(3), first)


@pytest.mark.parametrize("name", ["gpu9", "cuda:99", "xpu:3"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(BadInputError, match=rf"--device {name} .*--device cpu"):
        choose_device(name)


def test_half_types_are_found_in_a_child_process() -> None:
    """Which ones there are depends on the machine; that a forbidden unit does not kill us does not."""
    assert set(choose_device("cpu").usable_half_types()) <= {torch.bfloat16, torch.float16}


@pytest.mark.parametrize("allowed", [True, False])
def test_half_partials_are_allowed_or_forbidden_where_there_is_a_choice(
    monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    settings = SimpleNamespace(untouched=True)
    monkeypatch.setattr(torch.backends.cuda, "matmul", settings)
    choose_device("cpu").set_half_partials(allowed)
    assert vars(settings) == {"untouched": True}
    Device(torch_device=torch.device("cuda"), reason="test").set_half_partials(allowed)
    assert settings.allow_fp16_accumulation is allowed
    assert settings.allow_fp16_reduced_precision_reduction is allowed
    assert settings.allow_bf16_reduced_precision_reduction is allowed
