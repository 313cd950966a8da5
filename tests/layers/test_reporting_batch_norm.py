from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.layers.reporting_batch_norm import group_moments
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.passes.gradient_sum import GradientSum
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup

SAMPLES_OF_RANK = [5, 3]


def _images(dtype: torch.dtype, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sum(SAMPLES_OF_RANK), 6, 9, 9, generator=generator, dtype=torch.float64).to(dtype)


def _weights(images: Tensor) -> Tensor:
    """What the loss multiplies each output with, so that all gradients differ."""
    return torch.randn(images.shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64)


def _norm(dtype: torch.dtype, *, affine: bool = True) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(6, eps=1e-3, momentum=0.1, affine=affine, dtype=dtype)
    if affine:
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            norm.weight.copy_(1.0 + 0.3 * torch.randn(6, generator=generator))
            norm.bias.copy_(torch.randn(6, generator=generator))
    return norm


def _pass(model: nn.Module, images: Tensor, weights: Tensor) -> dict[str, Tensor]:
    inputs = images.clone(memory_format=torch.preserve_format).requires_grad_()
    outputs = model(inputs)
    (outputs * weights.to(outputs.dtype)).sum().backward()
    assert inputs.grad is not None
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"outputs": outputs.detach(), "inputs": inputs.grad, **gradients}


def _own_part(group: ReplicaGroup, values: Tensor) -> Tensor:
    return torch.split(values, SAMPLES_OF_RANK)[group.rank]


def _grouped_pass(
    group: ReplicaGroup,
    images: Tensor,
    weight_dtype: torch.dtype,
    *,
    stable: bool = False,
    together: bool = True,
    affine: bool = True,
) -> dict[str, Tensor]:
    model = nn.Sequential(_norm(weight_dtype, affine=affine))
    owner = install_batch_norm_owner(
        model, kept_share=None, group=group if together else ALONE, stable=stable
    )
    found = _pass(model, _own_part(group, images), _own_part(group, _weights(images)))
    sums = owner.report_sums()
    group.sum_(sums)
    owner.commit_sums(sums)
    return found | {name: value.clone() for name, value in model.state_dict().items() if "running" in name}


def _call_grouped(group: ReplicaGroup, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return _grouped_pass(group, *arguments, **options)


def _joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Both members' part of the samples, side by side, and the sum of their parameters' gradients."""
    joined = {name: torch.cat([part[name] for part in parts]) for name in ("outputs", "inputs")}
    summed = {name: parts[0][name] + parts[1][name] for name in ("0.weight", "0.bias") if name in parts[0]}
    return joined | summed


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.fixture(autouse=True)
def threads_of_a_rank() -> Iterator[None]:
    """Another number of threads adds float32 values up in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_two_members_compute_what_one_process_does(
    rank_pool: RankPool, dtype: torch.dtype, stable: bool, layout: torch.memory_format
) -> None:
    # One process adds up channels_last values in order, which is itself up to 1e-6 away from the truth.
    same_sums = layout == torch.contiguous_format and not stable
    tolerance = 1e-12 if dtype == torch.float64 else 1e-7 if same_sums else 1e-6
    images = _images(dtype).contiguous(memory_format=layout)
    found = _joined(rank_pool.run(_call_grouped, (images, dtype), {"stable": stable}, ranks=2))
    expected = _pass(nn.Sequential(_norm(dtype)), images, _weights(images))
    errors = {name: _error(found[name], expected[name]) for name in expected}
    assert max(errors.values()) <= tolerance, errors


def test_case_85_members_that_normalise_alone_differ(rank_pool: RankPool) -> None:
    images = _images(torch.float64)
    alone = _joined(rank_pool.run(_call_grouped, (images, torch.float64), {"together": False}, ranks=2))
    expected = _pass(nn.Sequential(_norm(torch.float64)), images, _weights(images))
    assert all(_error(alone[name], expected[name]) > 1e-3 for name in ("outputs", "inputs", "0.weight"))


@pytest.mark.parametrize("stable", [False, True])
def test_running_statistics_are_those_of_one_process_and_bitwise_equal(
    rank_pool: RankPool, stable: bool
) -> None:
    images = _images(torch.float64)
    first, second = rank_pool.run(_call_grouped, (images, torch.float64), {"stable": stable}, ranks=2)
    model = nn.Sequential(_norm(torch.float64))
    owner = install_batch_norm_owner(model, kept_share=None)
    model(images)
    owner.commit()
    for name in ("0.running_mean", "0.running_var"):
        assert torch.equal(first[name], second[name])
        assert torch.allclose(first[name], model.state_dict()[name], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_half_precision_inputs_have_float32_statistics(
    rank_pool: RankPool, stable: bool, affine: bool
) -> None:
    images = _images(torch.bfloat16)
    parts = rank_pool.run(
        _call_grouped, (images, torch.float32), {"stable": stable, "affine": affine}, ranks=2
    )
    found = _joined(parts)
    assert found["outputs"].dtype == found["inputs"].dtype == torch.bfloat16
    expected = _pass(nn.Sequential(_norm(torch.float32, affine=affine)), images.float(), _weights(images))
    half = torch.finfo(torch.bfloat16).eps
    assert all(_error(found[name], expected[name]) < half for name in expected)
    mean = images.double().mean((0, 2, 3))
    assert torch.allclose(parts[0]["0.running_mean"].double(), 0.1 * mean, rtol=1e-6, atol=1e-9)


def _small_net() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(6, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(100, 3)).double()


def _gradient_of_net(group: ReplicaGroup, images: Tensor, overlaps: bool) -> Tensor:
    """The whole gradient; in the backward pass its sums and those of batch norm take turns."""
    model = _small_net()
    install_batch_norm_owner(model, kept_share=None, group=group)
    parameters = FlatParameters(model)
    sums = GradientSum(parameters, model=model, group=group, max_buffer_bytes=8, overlaps=overlaps)
    sums.begin_last_pass()
    own = images if group.size == 1 else _own_part(group, images)
    model(own).square().sum().backward()
    sums.finish()
    return parameters.gradients


def test_gradient_sums_and_batch_norm_share_a_backward_pass(rank_pool: RankPool) -> None:
    images = _images(torch.float64)
    expected = _gradient_of_net(ALONE, images, False)
    plain = rank_pool.run(_gradient_of_net, images, False, ranks=2)
    overlapped = rank_pool.run(_gradient_of_net, images, True, ranks=2)
    assert _error(plain[0], expected) < 1e-12
    assert all(torch.equal(found, plain[0]) for found in [plain[1], *overlapped])


def _statistics_of_four(group: ReplicaGroup, images: list[Tensor]) -> dict[str, Tensor]:
    model = nn.Sequential(_norm(torch.float64))
    owner = install_batch_norm_owner(model, kept_share=None, group=group.parts_of(2))
    model(images[group.rank])
    sums = owner.report_sums()
    group.sum_(sums)
    owner.commit_sums(sums)
    return dict(model.state_dict())


def test_two_groups_of_two_move_statistics_by_the_average_of_both(rank_pool: RankPool) -> None:
    images = [_images(torch.float64, seed=seed) for seed in range(4)]
    found = rank_pool.run(_statistics_of_four, images)
    pairs = [torch.cat(images[:2]), torch.cat(images[2:])]
    variance = torch.stack([pair.var((0, 2, 3), correction=0) for pair in pairs]).mean(0)
    assert torch.allclose(found[0]["0.running_var"], 0.9 + 0.1 * variance, rtol=1e-12)
    for other in found[1:]:
        assert all(torch.equal(value, other[name]) for name, value in found[0].items())
    alone = torch.stack([image.var((0, 2, 3), correction=0) for image in images]).mean(0)
    assert not torch.allclose(found[0]["0.running_var"], 0.9 + 0.1 * alone, rtol=1e-6)


def _flat_pass(group: ReplicaGroup, samples: Tensor) -> Tensor:
    """Two-dimensional inputs that need no gradient, as at the start of a model."""
    model = nn.Sequential(nn.BatchNorm1d(4)).double()
    install_batch_norm_owner(model, kept_share=None, group=group)
    output: Tensor = model(_own_part(group, samples))
    output.square().sum().backward()  # type: ignore[no-untyped-call]
    return output.detach()


def test_inputs_without_gradient_and_without_images(rank_pool: RankPool) -> None:
    samples = torch.randn(8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = torch.cat(rank_pool.run(_flat_pass, samples, ranks=2))
    expected = nn.BatchNorm1d(4).double()(samples)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_stable_statistics_of_one_process_change_nothing_else(dtype: torch.dtype) -> None:
    weight_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    images = _images(dtype)
    plain, stable = (nn.Sequential(_norm(weight_dtype)) for _ in range(2))
    owner = install_batch_norm_owner(stable, kept_share=None, stable=True)
    found, expected = (_pass(model, images, _weights(images)) for model in (stable, plain))
    owner.commit()
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-12, torch.bfloat16: 1e-2}[dtype]
    assert all(_error(found[name], expected[name]) < tolerance for name in expected)
    assert found["outputs"].dtype == dtype


def _variance_error(values: Tensor, variance: Tensor) -> float:
    exact = values.double().var((0, 2, 3), correction=0)
    return float((variance.double() / exact - 1.0).abs().max())


def test_stable_statistics_keep_digits_that_one_half_precision_pass_loses() -> None:
    values = (200.0 + 4.0 * _images(torch.float64)).to(torch.bfloat16)
    moments = group_moments(values, group=ALONE, stable=True)
    in_half = torch.native_batch_norm(values, None, None, None, None, True, 0.0, 0.0)[2]
    mean, mean_square = values.float().mean((0, 2, 3)), values.float().square().mean((0, 2, 3))
    assert _variance_error(values, in_half.double().pow(-2)) > 1e-3
    assert _variance_error(values, mean_square - mean.square()) > 1e-5
    assert _variance_error(values, moments.variance) < 1e-6


def test_stable_statistics_keep_digits_of_large_channels_last_images() -> None:
    generator = torch.Generator().manual_seed(0)
    values = (30.0 + torch.randn(4, 2, 128, 128, generator=generator)).contiguous(
        memory_format=torch.channels_last
    )
    exact = values.double().mean((0, 2, 3))
    errors = [
        float((group_moments(values, group=ALONE, stable=stable).mean - exact).abs().max())
        for stable in (False, True)
    ]
    assert errors[0] > 1e-5
    assert errors[1] < 3e-6


def _untracked_pass(group: ReplicaGroup, images: Tensor, stable: bool) -> dict[str, Tensor]:
    model = nn.Sequential(nn.BatchNorm2d(6, eps=1e-3, track_running_stats=False, dtype=images.dtype))
    owner = install_batch_norm_owner(model, kept_share=None, group=group, stable=stable)
    found = _pass(model, _own_part(group, images), _own_part(group, _weights(images)))
    assert owner.layers == []
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
    return found


@pytest.mark.parametrize("stable", [False, True])
def test_a_group_shares_moments_where_no_statistics_are_tracked(rank_pool: RankPool, stable: bool) -> None:
    images = _images(torch.float64)
    found = _joined(rank_pool.run(_untracked_pass, images, stable, ranks=2))
    plain = nn.Sequential(nn.BatchNorm2d(6, eps=1e-3, track_running_stats=False, dtype=torch.float64))
    expected = _pass(plain, images, _weights(images))
    errors = {name: _error(found[name], expected[name]) for name in expected}
    assert max(errors.values()) <= 1e-12, errors
