import pytest
from torch import nn

from drivetrain.layers.norm_options import idle_norm_options
from drivetrain.recipe.schema import Recipe


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
    assert warning == f"{written} has no effect: --model {recipe.model} has no batch norm that trains."
    assert idle_norm_options(recipe, nn.Sequential(nn.BatchNorm2d(3))) == []


def test_a_momentum_needs_running_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    recipe = Recipe(bn_momentum=0.9, stable_norm=True)
    assert idle_norm_options(recipe, model) == [
        f"--bn-momentum 0.9 has no effect: no batch norm of --model {recipe.model} has running statistics."
    ]


def test_nothing_is_said_of_what_nobody_asked_for() -> None:
    assert idle_norm_options(Recipe(), nn.Sequential(nn.Conv2d(3, 4, 3))) == []
