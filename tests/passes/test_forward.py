"""How a model is run: precision and compilation."""

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device
from drivetrain.passes.forward import Precision, choose_precision, in_precision
from drivetrain.recipe.schema import Recipe

CPU = Device(torch_device=torch.device("cpu"), reason="test")
ACCELERATOR = Device(torch_device=torch.device("meta"), reason="test")
FLOAT32 = Precision(compute_dtype=torch.float32, device_type="cpu")
BFLOAT16 = Precision(compute_dtype=torch.bfloat16, device_type="cpu")


@pytest.fixture
def half_types(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The 16-bit types that devices say they run; a test fills in what it needs."""
    types: list[torch.dtype] = []
    monkeypatch.setattr(Device, "usable_half_types", lambda device: tuple(types))
    monkeypatch.setattr(Device, "prepare_half", lambda device, kind: None)
    return types


def test_auto_is_float32_on_a_cpu_whatever_it_runs(half_types: list[torch.dtype]) -> None:
    half_types += [torch.bfloat16, torch.float16]
    assert choose_precision(Recipe(), CPU) == FLOAT32
    assert choose_precision(Recipe(precision="32.32"), CPU) == FLOAT32


def test_auto_on_an_accelerator_is_bfloat16_where_it_has_it(half_types: list[torch.dtype]) -> None:
    half_types.append(torch.float16)
    assert choose_precision(Recipe(), ACCELERATOR).compute_dtype == torch.float32
    half_types.append(torch.bfloat16)
    chosen = choose_precision(Recipe(), ACCELERATOR)
    assert chosen == Precision(compute_dtype=torch.bfloat16, device_type="meta")
    assert choose_precision(Recipe(precision="32.32"), ACCELERATOR).compute_dtype == torch.float32


def test_what_a_device_does_not_run_is_refused(half_types: list[torch.dtype]) -> None:
    asked = Recipe(precision="16.32", half_type="bfloat16")
    with pytest.raises(
        BadInputError,
        match=r"--precision 16\.32 with --half-type bfloat16 is not supported by this cpu device; "
        r"--precision 32\.32 works",
    ):
        choose_precision(asked, CPU)
    half_types.append(torch.bfloat16)
    assert choose_precision(asked, CPU) == BFLOAT16
    with pytest.raises(BadInputError, match="--half-type float16"):
        choose_precision(Recipe(precision="16.32", half_type="float16"), CPU)


def test_a_cpu_is_asked_only_where_half_precision_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(device: Device) -> tuple[torch.dtype, ...]:
        raise AssertionError("the question starts a process")

    monkeypatch.setattr(Device, "usable_half_types", asked)
    assert choose_precision(Recipe(), CPU) == FLOAT32


def test_half_precision_is_made_safe_before_it_is_used(
    half_types: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[torch.dtype] = []
    monkeypatch.setattr(Device, "prepare_half", lambda device, kind: prepared.append(kind))
    half_types += [torch.bfloat16, torch.float16]
    choose_precision(Recipe(precision="32.32"), CPU)
    assert prepared == []
    choose_precision(Recipe(precision="16.32", half_type="float16"), CPU)
    assert prepared == [torch.float16]


def test_descriptions() -> None:
    assert FLOAT32.description == "32.32 (float32)"
    assert BFLOAT16.description == "16.32 (bfloat16)"


def test_float32_changes_nothing() -> None:
    model = nn.Linear(4, 3)
    assert in_precision(model, FLOAT32) is model


def test_half_precision_computes_products_in_it_and_keeps_the_weights() -> None:
    seen: list[torch.dtype] = []

    def product(images: Tensor) -> Tensor:
        result = images @ images
        seen.append(result.dtype)
        return result

    images = torch.rand(4, 4)
    assert in_precision(product, BFLOAT16)(images).dtype == torch.bfloat16
    assert seen == [torch.bfloat16]
    assert (images @ images).dtype == torch.float32
