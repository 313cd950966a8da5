"""`drivetrain bench suite`: measures networks one by one."""

import argparse
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drivetrain.bench.result import plain_number
from drivetrain.bench.suite.case import DATASET, VARIANTS, WORKS, SuiteSettings, all_cases
from drivetrain.bench.suite.networks import DEFAULT_NETWORKS, check_networks
from drivetrain.bench.suite.rows import EPOCH_IMAGES
from drivetrain.cli.parsing.switch import add_switch
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe

__all__ = ["add_suite_arguments", "run_suite_command"]

_FOLDER = "runs/suite"
_MOST_S = 1800.0
_SETTINGS = SuiteSettings()


def add_suite_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `bench suite`."""
    several: tuple[tuple[str, Any, Sequence[Any], Sequence[str] | None, str], ...] = (
        (
            "--models",
            str,
            DEFAULT_NETWORKS,
            None,
            "networks (default: the 21 of the published comparison)",
        ),
        ("--batch-sizes", int, (1, 32), None, "batch sizes (default: 1 32)"),
        ("--work", str, WORKS, WORKS, "what to measure (default: infer train)"),
        (
            "--device",
            str,
            ("auto",),
            None,
            "devices such as cpu cuda (default: the accelerator if there is one)",
        ),
        (
            "--variants",
            str,
            ("eager", "captured"),
            VARIANTS,
            "eager: one operation after the other; captured: recorded once and replayed (CUDA graph), on "
            "CUDA devices only; compiled: with torch.compile, and captured (default: eager captured)",
        ),
    )
    for option, kind, default, choices, text in several:
        parser.add_argument(
            option, type=kind, nargs="+", default=list(default), choices=choices, metavar="X", help=text
        )
    numbers: tuple[tuple[str, Any, float | str | None, str], ...] = (
        ("--image-size", int, _SETTINGS.image_size, "side of the images in pixels"),
        ("--precision", str, _SETTINGS.precision, "precision as in `train`"),
        ("--num-threads", int, None, "CPU threads (default: torch's choice)"),
        ("--warmup-steps", int, _SETTINGS.warmup_steps, "warm-up steps of a case"),
        ("--repeats", int, _SETTINGS.repeats, "repeats of a case; the median is reported"),
        ("--seconds", float, _SETTINGS.seconds, "seconds of a repeat"),
        ("--time-limit", float, _MOST_S, "seconds after which a case is ended and counts as timed out"),
        ("--epoch-images", int, EPOCH_IMAGES, "images of the epoch of the total time"),
    )
    for option, kind, number, text in numbers:
        shown = plain_number(number) if isinstance(number, float) else number
        note = "" if number is None else f" (default: {shown})"
        parser.add_argument(option, type=kind, default=number, metavar="N", help=text + note)
    add_switch(parser, "--retry-failed", "measure cases again that failed before (default: False)")
    parser.add_argument(
        "--output",
        metavar="DIR",
        default=_FOLDER,
        help=f"folder of the results; the same command continues in it (default: {_FOLDER})",
    )


def run_suite_command(args: argparse.Namespace) -> int:
    """Runs `bench suite`: measures what is missing, then writes suite.json, suite.csv and the rooflines.

    The exit status is 1 if no case was measured.
    """
    for option, value in (("--time-limit", args.time_limit), ("--epoch-images", args.epoch_images)):
        if not 0 < value < math.inf:
            raise BadInputError(
                f"{option} {plain_number(float(value))} must be a number above 0; {option} 1000 works."
            )
    models = tuple(args.models)
    if models != DEFAULT_NETWORKS:
        check_networks(models)
    settings = SuiteSettings(
        image_size=args.image_size,
        precision=args.precision,
        num_threads=args.num_threads,
        warmup_steps=args.warmup_steps,
        repeats=args.repeats,
        seconds=args.seconds,
    )
    cases = all_cases(
        devices=_devices(args.device),
        variants=args.variants,
        works=args.work,
        models=models,
        batch_sizes=args.batch_sizes,
    )
    _check_options(settings)
    from drivetrain.bench.suite.figure import draw_rooflines
    from drivetrain.bench.suite.folder import SuiteFolder
    from drivetrain.bench.suite.result_files import suite_lines, suite_result, write_suite
    from drivetrain.bench.suite.run import run_suite

    folder = SuiteFolder(Path(args.output))
    with Reporter() as reporter:
        ended = run_suite(
            cases,
            settings,
            folder,
            reporter=reporter,
            most_s=args.time_limit,
            retries=bool(args.retry_failed),
        )
        result, totals = suite_result(ended, settings, command=_command(args), epoch_images=args.epoch_images)
        for line in suite_lines(result, totals):
            reporter.result(line)
        files = write_suite(result, ended, folder.path)
        files += draw_rooflines(result.to_json(), folder.path / "suite")
        reporter.say(f"written: {', '.join(map(str, files))}")
    return 0 if any(each.outcome.is_measured for each in ended) else 1


def _check_options(settings: SuiteSettings) -> None:
    """Raises for options that no case could use, by the recipe of one."""
    given = {
        "dataset": DATASET,
        "model": "resnet18",
        "image_size": settings.image_size,
        "precision": settings.precision,
        "num_threads": settings.num_threads,
    }
    resolve_recipe(overrides={name: str(value) for name, value in given.items() if value is not None})


def _devices(names: Sequence[str]) -> list[str]:
    """The devices by name; asks which accelerator there is without touching it, as the cases need it."""
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    found = []
    for name in names:
        wanted = (accelerator.type if accelerator else "cpu") if name == "auto" else name
        count = torch.accelerator.device_count() if accelerator else 0
        kind = accelerator.type if accelerator else "cpu"
        if wanted not in {"cpu", kind, *(f"{kind}:{index}" for index in range(count))}:
            there = "cpu" if accelerator is None else f"cpu {accelerator.type}"
            raise BadInputError(f"--device {name} is not a device of this machine; --device {there} works.")
        found.append(wanted)
    return found


def _command(args: argparse.Namespace) -> str:
    """The command line to repeat a suite, with what was typed."""
    parser = argparse.ArgumentParser()
    add_suite_arguments(parser)
    words = ["drivetrain", "bench", "suite"]
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        if action.dest != "help" and value is not None and value != action.default:
            words += [action.option_strings[0], *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)
