"""Which cases a suite has, and the commands that measure them."""

import argparse
import re
from dataclasses import replace
from typing import Any

import pytest

from drivetrain.bench.suite.case import VARIANTS, WORKS, Case, SuiteSettings, Variant, Work, all_cases
from drivetrain.cli import bench
from drivetrain.cli.options import normalise_argv, typed_overrides
from drivetrain.core.errors import BadInputError
from tests.bench.suite.fake_cases import fake_cases


def test_every_combination_is_a_case_with_a_file_of_its_own() -> None:
    cases = fake_cases(variants=VARIANTS)
    assert len(cases) == 3 * 3 * 2 * 2
    assert len({case.key for case in cases}) == len(cases)
    assert len({case.title for case in cases}) == len(cases)


def test_nothing_is_captured_on_a_cpu() -> None:
    assert {case.variant for case in fake_cases(variants=VARIANTS, device="cpu")} == {"eager", "compiled"}
    with pytest.raises(BadInputError, match="--variants eager works"):
        fake_cases(variants=["captured"], device="cpu")


def test_a_name_with_a_slash_makes_no_folder() -> None:
    case = Case(device="cuda:0", variant="eager", work="train", model="timm/resnet18", batch_size=1)
    assert re.fullmatch("cuda0-eager-train-timm-resnet18-[0-9a-f]{6}-1", case.key)
    plain = replace(case, model="timm-resnet18")
    assert plain.key == "cuda0-eager-train-timm-resnet18-1"


def test_batch_sizes_below_one_are_refused() -> None:
    with pytest.raises(BadInputError, match="--batch-sizes 0"):
        all_cases(devices=["cpu"], variants=["eager"], works=WORKS, models=["resnet18"], batch_sizes=[1, 0])


@pytest.mark.parametrize(
    "wrong",
    [{"image_size": 0}, {"repeats": 0}, {"warmup_steps": -1}, {"seconds": 0.0}, {"seconds": float("nan")}],
)
def test_settings_that_measure_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="works"):
        SuiteSettings(**wrong)


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_command_of_a_case_is_one_that_exists(work: Work, variant: Variant) -> None:
    case = Case(device="cuda", variant=variant, work=work, model="resnet18", batch_size=32)
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    arguments = case.arguments(SuiteSettings(num_threads=2))
    args = parser.parse_args(normalise_argv(arguments[1:]))
    assert args.action == work
    typed = typed_overrides(args)
    assert (typed["model"], typed["image_size"], typed["device"]) == ("resnet18", "224", "cuda")
    assert typed["compile"] == ("on" if variant == "compiled" else "off")
    if work == "infer":
        assert args.batch_sizes == [32]
        assert bool(args.captured) == (variant == "captured")
    else:
        assert typed["micro_batch_size"] == "32"
        assert (typed["capture"] == "off") == (variant == "eager")
