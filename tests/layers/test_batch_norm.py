"""Running statistics move once per weight update; options without effect are named."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.layers.batch_norm import check_normalised_values, idle_norm_options, install_batch_norm_owner
from drivetrain.layers.reporting_batch_norm import ReportingBatchNorm
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.schema import Recipe


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8, momentum=0.01),
        nn.ReLU(),
        nn.Conv2d(8, 4, 3),
        nn.BatchNorm2d(4, 1e-3, 0.2),
    ).double()


def _images(seed: int = 0) -> torch.Tensor:
    return torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("loss_scale", [1.0, 900.0], ids=["case 83", "case 84"])
def test_outputs_gradients_and_statistics_equal_the_standard_batch_norm(loss_scale: float) -> None:
    standard, ours = _net(), _net()
    owner = install_batch_norm_owner(ours, kept_share=None)
    outputs = [model(_images()) for model in (standard, ours)]
    assert torch.equal(outputs[0], outputs[1])
    for output in outputs:
        (output.square().sum() * loss_scale).backward()
    owner.commit()
    for (name, expected), (_, actual) in zip(
        standard.named_parameters(), ours.named_parameters(), strict=True
    ):
        assert expected.grad is not None
        assert actual.grad is not None
        assert torch.equal(expected.grad, actual.grad), name
    count = 16 * 6 * 6
    expected_norm, actual_norm = standard[1], ours[1]
    assert isinstance(expected_norm, nn.BatchNorm2d)
    assert isinstance(actual_norm, ReportingBatchNorm)
    assert torch.allclose(expected_norm.running_mean, actual_norm.running_mean, rtol=1e-12, atol=1e-14)  # type: ignore[arg-type]
    assert expected_norm.running_var is not None
    biased = 0.99 + (expected_norm.running_var - 0.99) * (count - 1) / count
    assert torch.allclose(biased, actual_norm.running_var, rtol=1e-12, atol=1e-14)


def test_statistics_move_once_per_update_by_the_average_over_micro_batches() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3)).double()
    owner = install_batch_norm_owner(model, kept_share=0.97)
    parts = torch.split(_images(), 4)
    for part in parts:
        model(part)
    norm = model[0]
    assert isinstance(norm, ReportingBatchNorm)
    assert torch.equal(norm.running_mean, torch.zeros(3, dtype=torch.float64))
    owner.commit()
    mean = torch.stack([part.mean((0, 2, 3)) for part in parts]).mean(0)
    variance = torch.stack([part.var((0, 2, 3), correction=0) for part in parts]).mean(0)
    assert torch.allclose(norm.running_mean, 0.03 * mean, rtol=1e-10)
    assert torch.allclose(norm.running_var, 0.97 + 0.03 * variance, rtol=1e-10)
    assert norm.num_batches_tracked.item() == 1


def test_evaluation_uses_and_does_not_move_statistics() -> None:
    model, standard = _net(), _net()
    owner = install_batch_norm_owner(model, kept_share=0.9)
    before = copy.deepcopy(model.state_dict())
    assert torch.equal(model.eval()(_images()), standard.eval()(_images()))
    owner.commit()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_forgotten_reports_leave_no_trace() -> None:
    model = _net()
    owner = install_batch_norm_owner(model, kept_share=0.9)
    before = copy.deepcopy(model.state_dict())
    model(_images())
    owner.forget()
    owner.commit()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_layers_that_run_unequally_often_are_averaged_each() -> None:
    shared = nn.BatchNorm2d(3, momentum=0.5).double()

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = shared
            self.once = nn.BatchNorm2d(3, momentum=0.5).double()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.once(inputs) + self.norm(inputs) + self.norm(inputs * 3)
            return output

    model = Twice()
    owner = install_batch_norm_owner(model, kept_share=None)
    model(_images())
    owner.commit()
    mean = _images().mean((0, 2, 3))
    assert torch.allclose(model.norm.running_mean, 0.5 * 2 * mean, rtol=1e-10)  # type: ignore[arg-type]
    assert torch.allclose(model.once.running_mean, 0.5 * mean, rtol=1e-10)  # type: ignore[arg-type]


class _Branches(nn.Module):
    """Three batch norms of which a pass runs one once, one twice and one not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice, self.never = (nn.BatchNorm2d(3, momentum=0.5).double() for _ in range(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.once(inputs) + self.twice(inputs) + self.twice(inputs * 3)
        return output


@pytest.mark.parametrize("make_model", [_net, _Branches])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_statistics_move_by_sums_as_they_do_by_reports(
    make_model: Callable[[], nn.Module], micro_batches: int
) -> None:
    by_reports, by_sums = make_model(), make_model()
    owners = [install_batch_norm_owner(model, kept_share=0.9) for model in (by_reports, by_sums)]
    for seed in range(micro_batches):
        by_reports(_images(seed))
        by_sums(_images(seed))
    owners[0].commit()
    owners[1].commit_sums(owners[1].report_sums())
    assert not any(layer.reported for layer in owners[1].layers)
    expected = by_reports.state_dict()
    for name, value in by_sums.state_dict().items():
        assert torch.allclose(value, expected[name], rtol=1e-14, atol=1e-16), name


def test_sums_of_replicas_weigh_every_report_alike_and_leave_idle_layers_alone() -> None:
    replicas = [_Branches(), _Branches()]
    owners = [install_batch_norm_owner(model, kept_share=0.5) for model in replicas]
    for seed in range(3):
        replicas[min(seed, 1)](_images(seed))
    sums = owners[0].report_sums() + owners[1].report_sums()
    assert sums[:3].tolist() == [3.0, 6.0, 0.0]
    for owner in owners:
        owner.commit_sums(sums)
    mean = torch.stack([_images(seed).mean((0, 2, 3)) for seed in range(3)]).mean(0)
    for model in replicas:
        assert torch.allclose(model.once.running_mean, 0.5 * mean, rtol=1e-12)  # type: ignore[arg-type]
        assert torch.equal(model.never.running_var, torch.ones(3, dtype=torch.float64))  # type: ignore[arg-type]
        assert [int(layer.num_batches_tracked) for layer in owners[0].layers] == [1, 1, 0]
    first, second = replicas[0].state_dict(), replicas[1].state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_a_model_without_batch_norm_has_no_sums() -> None:
    owner = install_batch_norm_owner(nn.Linear(2, 2), kept_share=None)
    assert owner.report_sums().shape == (0,)
    owner.commit_sums(owner.report_sums())


def test_layers_that_run_again_for_the_backward_pass_move_statistics_once() -> None:
    plain, recomputed = _net(), _net()
    owners = [install_batch_norm_owner(model, kept_share=0.9) for model in (plain, recomputed)]
    for seed in range(2):
        plain(_images(seed))
        with torch.no_grad():
            recomputed(_images(seed))
        recomputed(_images(seed))
    for owner in owners:
        owner.commit_sums(owner.report_sums())
    expected = plain.state_dict()
    for name, value in recomputed.state_dict().items():
        assert torch.allclose(value, expected[name], rtol=1e-14, atol=1e-16), name


class _Subclass(nn.BatchNorm2d):
    """A batch norm that moves its statistics in a way of its own."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        statistics, momentum = (self.running_mean, self.running_var), (self.momentum or 0.0) / 2
        uses_batch = self.training or self.running_mean is None
        return 2 * nn.functional.batch_norm(
            inputs, *statistics, self.weight, self.bias, uses_batch, momentum, self.eps
        )


def test_a_users_own_kind_of_batch_norm_is_left_alone() -> None:
    model = nn.Sequential(_Subclass(3), nn.BatchNorm2d(3))
    owner = install_batch_norm_owner(model, kept_share=None)
    assert owner.unowned == ("0",)
    assert len(owner.layers) == 1
    assert isinstance(model[0], _Subclass)


def test_one_value_per_channel_cannot_be_normalised() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12))
    owner = install_batch_norm_owner(model, kept_share=None)
    model.eval()(torch.zeros(2, 3, 2, 2))
    check_normalised_values(owner, micro_batch_size=2)
    with pytest.raises(BadInputError, match="--micro-batch-size 2 works"):
        check_normalised_values(owner, micro_batch_size=1)


def test_one_sample_is_enough_beside_that_of_another_replica() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12))
    owner = install_batch_norm_owner(model, kept_share=None, group=ReplicaGroup(size=2))
    model.eval()(torch.zeros(2, 3, 2, 2))
    check_normalised_values(owner, micro_batch_size=1)


def test_state_names_are_those_of_the_plain_model() -> None:
    model = _net()
    names = list(model.state_dict())
    install_batch_norm_owner(model, kept_share=None)
    assert sorted(model.state_dict()) == sorted(names)


def test_a_cumulative_average_is_refused_by_name() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3, momentum=None))
    with pytest.raises(BadInputError, match=r"batch norm 0 .*--bn-momentum 0\.97"):
        install_batch_norm_owner(model, kept_share=None)
    assert len(install_batch_norm_owner(model, kept_share=0.9).layers) == 1


def test_a_layer_without_running_statistics_is_replaced_only_where_that_changes_something() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    install_batch_norm_owner(model, kept_share=None)
    assert isinstance(model[0], nn.BatchNorm2d)
    owner = install_batch_norm_owner(model, kept_share=None, stable=True)
    assert list(model.modules())[1:] == owner.batch_norms


def test_a_layer_without_running_statistics_evaluates_by_those_of_the_batch() -> None:
    images = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    plain = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False)).eval()
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    install_batch_norm_owner(model, kept_share=None, stable=True)
    assert torch.equal(model.eval()(images), plain(images))


def test_repeating_a_pass_takes_the_kept_moments_of_untracked_layers_too() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    owner = install_batch_norm_owner(model, kept_share=None, stable=True)
    images = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    with owner.to_be_recomputed("a"):
        first = model(images)
    with owner.recomputing("a"):
        again = model(images)
    assert torch.equal(first, again)
    assert not model[0].kept_moments


def _instance_net() -> nn.Sequential:
    return nn.Sequential(nn.InstanceNorm2d(3, affine=True, track_running_stats=True, momentum=0.25))


def test_instance_norm_computes_what_torch_does() -> None:
    images = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(2))
    plain, model = _instance_net(), _instance_net()
    install_batch_norm_owner(model, kept_share=None)
    assert torch.equal(model(images), plain(images))
    plain.load_state_dict(model.state_dict())
    assert torch.allclose(model.eval()(images), plain.eval()(images), rtol=0, atol=1e-6)


def test_statistics_of_instance_norm_move_once_by_the_average_over_micro_batches() -> None:
    images = torch.randn(6, 3, 5, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    model = _instance_net().double()
    owner = install_batch_norm_owner(model, kept_share=0.5)
    for part in torch.split(images, 2):
        model(part)
    owner.commit()
    mean, variance = images.mean((2, 3)).mean(0), images.var((2, 3), correction=0).mean(0)
    state = model.state_dict()
    assert torch.allclose(state["0.running_mean"], 0.25 * mean, rtol=1e-12)
    assert torch.allclose(state["0.running_var"], 0.75 + 0.25 * variance, rtol=1e-12)
    assert state["0.num_batches_tracked"] == 1


def test_an_own_kind_without_statistics_is_named_where_a_group_would_be_shared() -> None:
    model = nn.Sequential(_Subclass(3, track_running_stats=False))
    assert install_batch_norm_owner(model, kept_share=None).unowned == ()
    assert install_batch_norm_owner(model, kept_share=None, group=ReplicaGroup(size=2)).unowned == ("0",)


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({"bn_momentum": 0.9}, "--bn-momentum 0.9"),
        ({"stable_norm": True}, "--stable-norm True"),
        ({"dbn_replica_group_size": 2, "replicas": 2}, "--dbn-replica-group-size 2"),
    ],
)
def test_options_about_batch_norm_are_named_where_there_is_none(
    options: dict[str, object], written: str
) -> None:
    recipe = Recipe.model_validate(options)
    (warning,) = idle_norm_options(recipe, nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)))
    assert warning == f"{written} has no effect: --model {recipe.model} has no trainable batch norm."
    assert idle_norm_options(recipe, nn.Sequential(nn.BatchNorm2d(3))) == []


def test_a_momentum_needs_running_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    recipe = Recipe(bn_momentum=0.9, stable_norm=True)
    assert idle_norm_options(recipe, model) == [
        f"--bn-momentum 0.9 has no effect: no batch norm of --model {recipe.model} has running statistics."
    ]


def test_nothing_is_said_of_what_nobody_asked_for() -> None:
    assert idle_norm_options(Recipe(), nn.Sequential(nn.Conv2d(3, 4, 3))) == []
