"""Which precisions, scales and roundings go together."""

from typing import Any

import pytest

from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe


def _recipe(**options: Any) -> Recipe:
    return resolve_recipe(overrides=options).recipe


@pytest.mark.parametrize("precision", ["foo", "32.16"])
def test_cases_73_and_74_other_precisions_end_with_one_sentence(
    precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--precision", precision]) == 2
    error = capsys.readouterr().err
    assert f"--precision is {precision}, it must be one of auto, 32.32, 16.32, 16.16;" in error
    assert error.count("\n") == 1


def test_16_16_may_be_a_number_of_yaml() -> None:
    assert _recipe(precision=16.16).precision == "16.16"


@pytest.mark.parametrize(
    ("given", "expected"), [(0, 0.0), ("128", 128.0), (1e3, 1000.0), ("Dynamic", "dynamic")]
)
def test_loss_scaling_is_a_number_or_dynamic(given: object, expected: object) -> None:
    assert _recipe(loss_scaling=given).loss_scaling == expected


@pytest.mark.parametrize("given", [-1, "much", "nan", "inf", True])
def test_other_scales_are_refused(given: object) -> None:
    with pytest.raises(BadInputError, match=r"--loss-scaling .*--loss-scaling dynamic works"):
        _recipe(loss_scaling=given)


def test_a_static_scale_has_a_largest_value() -> None:
    assert _recipe(loss_scaling=2**24).loss_scaling == 16777216
    with pytest.raises(BadInputError) as caught:
        _recipe(loss_scaling="16777217")
    assert (
        str(caught.value) == "--loss-scaling 16777217.0 must be at most 16777216; --loss-scaling 32768 works."
    )
    assert _recipe(loss_scaling=32768).loss_scaling == 32768


@pytest.mark.parametrize(("given", "expected"), [("True", "dynamic"), (True, "dynamic"), ("false", 0.0)])
def test_another_systems_switch_for_it(given: object, expected: object) -> None:
    assert _recipe(auto_loss_scaling=given).loss_scaling == expected
    with pytest.raises(BadInputError, match="--auto-loss-scaling: maybe is not a valid boolean value"):
        _recipe(auto_loss_scaling="maybe")


def test_rounding_needs_weights_of_16_bits() -> None:
    assert _recipe(stochastic_rounding=True, precision="16.16").stochastic_rounding
    assert not _recipe(stochastic_rounding=False, precision="32.32").stochastic_rounding
    with pytest.raises(BadInputError, match=r"--stochastic-rounding True.*add --precision 16\.16"):
        _recipe(stochastic_rounding=True)
    for precision in ("32.32", "16.32"):
        with pytest.raises(BadInputError) as caught:
            _recipe(stochastic_rounding=True, precision=precision)
        assert str(caught.value) == (
            f"--stochastic-rounding True has no effect with --precision {precision}; --precision 16.16 works."
        )


def test_a_later_precision_overrules_rounding_with_a_warning() -> None:
    base = {"stochastic_rounding": True, "precision": "16.16"}
    resolved = resolve_recipe(base=base, overrides={"precision": "32.32"})
    assert resolved.warnings == ("--stochastic-rounding True has no effect with --precision 32.32.",)


def test_half_partials_and_lists_need_half_products() -> None:
    with pytest.raises(BadInputError, match=r"--half-partials True has no effect with --precision 32\.32"):
        _recipe(half_partials=True, precision="32.32")
    lists = {"half": ["conv"]}
    assert _recipe(precision_list=lists, precision="16.32").precision_list is not None
    with pytest.raises(BadInputError, match=r"--precision-list .* has no effect with --precision 32\.32"):
        _recipe(precision_list=lists, precision="32.32")
    with pytest.raises(
        BadInputError, match=r"with --precision 16\.16 all weights have 16 bits; --precision 16\.32"
    ):
        _recipe(precision_list=lists, precision="16.16")


def test_the_weights_of_all_stages_have_one_type() -> None:
    one = {"stages": 2, "stage_options": [{"stage": 1, "precision": "16.16"}]}
    assert _recipe(precision="16.16", **one).stage_options[0]["precision"] == "16.16"
    with pytest.raises(BadInputError, match=r"of stage 1: precision 16\.16 .*use --precision 16\.16"):
        _recipe(precision="32.32", **one)
    other = {"stages": 2, "stage_options": [{"stage": 0, "precision": "32.32"}]}
    with pytest.raises(BadInputError, match=r"of stage 0: precision 32\.32 .*use --precision 16\.32"):
        _recipe(precision="16.16", **other)


def test_compiled_layers_hide_their_numbers() -> None:
    assert _recipe(fp_exceptions=True).fp_exceptions
    with pytest.raises(BadInputError, match=r"--fp-exceptions True .* use --compile off"):
        _recipe(fp_exceptions=True, compile="on")
