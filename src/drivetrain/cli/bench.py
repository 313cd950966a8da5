"""`drivetrain bench`: throughput, latency and memory of training, inference and data on this machine."""

import argparse
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivetrain.bench.repetition import Repetition
from drivetrain.bench.result import plain_number
from drivetrain.bench.result_table import check_output, result_lines, write_result
from drivetrain.bench.subject import WantedData, prepare_subject
from drivetrain.cli.launched import resolve_for_ranks
from drivetrain.cli.options import add_recipe_options, recipe_from_args, typed_overrides
from drivetrain.cli.parsing.switch import add_switch
from drivetrain.cli.suite.command import add_suite_arguments, run_suite_command
from drivetrain.cli.suite.compare import compare_suite_files
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.progress import showing_progress
from drivetrain.ranks.find_place import find_place
from drivetrain.ranks.rank_place import Start, how_to_start
from drivetrain.recipe.aliases import require_target
from drivetrain.recipe.fields import fields_with, option_name
from drivetrain.recipe.given import Given
from drivetrain.recipe.idle import idle_warnings
from drivetrain.recipe.layout import devices_per_replica, rank_count, stage_count
from drivetrain.recipe.load import ResolvedRecipe, read_recipe_yaml
from drivetrain.recipe.notes import Fact, Measuring
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import open_run

if TYPE_CHECKING:
    from drivetrain.bench.result import BenchResult

_PICTURE = "bench-compare.png"
_DATA_KINDS = ("auto", "real", "host", "device")
_OWN_OPTIONS = (
    "data",
    "warmup_steps",
    "steps",
    "repeats",
    "batch_sizes",
    "checkpoint",
    "fold_batch_norm",
    "captured",
    "host_generated_data",
    "seconds",
    "needed",
    "output",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the actions `train`, `infer`, `data`, `suite` and `compare`."""
    actions = parser.add_subparsers(dest="action", metavar="train|infer|data|suite|compare", required=True)
    train = actions.add_parser("train", help="measure the throughput of training")
    train.add_argument(
        "--data",
        choices=_DATA_KINDS,
        default="auto",
        help="real: the recipe's data set; host: noise generated on the host and copied to the device at "
        "every step; device: noise kept on the device; auto: real if it can be opened, else device "
        "(default: auto)",
    )
    _add_repetition(train, warmup_steps=10, steps=20)
    infer = actions.add_parser("infer", help="measure the latency and throughput of inference")
    infer.add_argument(
        "run", metavar="RUN", nargs="?", help="run directory (default: the model of the recipe)"
    )
    infer.add_argument(
        "--batch-sizes",
        type=int,
        nargs="+",
        default=[1, 16],
        metavar="N",
        help="batch sizes to measure (default: 1 16)",
    )
    infer.add_argument(
        "--checkpoint",
        default="newest",
        metavar="WHICH",
        help="checkpoint of RUN: newest, best, or an update number (default: newest)",
    )
    infer.add_argument(
        "--data",
        choices=("device", "host"),
        default="device",
        help="device: noise kept on the device, ready for the model; host: noise generated on the host, "
        "copied to the device and preprocessed there for every batch (default: device)",
    )
    add_switch(infer, "--fold-batch-norm", "fold batch norms into the preceding convolutions (default: True)")
    add_switch(
        infer,
        "--captured",
        "record the uncompiled forward pass once as a CUDA graph and replay it; with --compile off on a "
        "CUDA device (default: False)",
    )
    _add_repetition(infer, warmup_steps=5, steps=20)
    data = actions.add_parser("data", help="measure the throughput of data loading, without training")
    data.add_argument(
        "--needed", type=float, metavar="N", help="images per second that the data must deliver to keep up"
    )
    _add_repetition(data, warmup_steps=2, steps=10)
    for action in (train, infer):
        add_switch(action, "--host-generated-data", "another way to write --data host")
        action.add_argument(
            "--seconds",
            type=float,
            metavar="S",
            help="longest time of a repeat, which may then have fewer than --steps steps; for a single "
            "process (default: no limit)",
        )
    for action in (train, infer, data):
        action.add_argument(
            "--output", metavar="FILE", help="write the result to FILE.json, FILE.csv or FILE.md"
        )
        add_recipe_options(action)
        action.set_defaults(own_defaults={name: action.get_default(name) for name in _OWN_OPTIONS})
    add_suite_arguments(
        actions.add_parser("suite", help="measure 21 networks one by one; continues where it stopped")
    )
    _add_compare(actions.add_parser("compare", help="compare results as ratios, in a table and a picture"))


def _add_compare(compare: argparse.ArgumentParser) -> None:
    compare.add_argument(
        "files",
        metavar="FILE.json",
        nargs="+",
        help="results, or folders of suites; the others are compared to the first (of a single suite, the "
        "other variants to the first)",
    )
    compare.add_argument(
        "--picture",
        metavar="FILE.png",
        help="where to write the picture (default: bench-compare.png; suites have --figure)",
    )
    compare.add_argument(
        "--figure",
        nargs="?",
        const="bench-suite",
        metavar="NAME",
        help="for suites: draw speed-up over arithmetic intensity and, of one suite, the roofline of each "
        "device, as NAME.png and NAME.svg (default name: bench-suite)",
    )
    compare.add_argument(
        "--intensity",
        choices=("parameter", "byte"),
        help="for suites: FLOPs per parameter or per byte (default: parameter)",
    )
    compare.add_argument("--output", metavar="FILE.json", help="write the ratios to FILE.json")


def _add_repetition(parser: argparse.ArgumentParser, *, warmup_steps: int, steps: int) -> None:
    parser.add_argument(
        "--warmup-steps",
        type=int,
        default=warmup_steps,
        metavar="N",
        help=f"warm-up steps before measuring (default: {warmup_steps})",
    )
    parser.add_argument(
        "--steps", type=int, default=steps, metavar="N", help=f"steps per repeat (default: {steps})"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="repeats; the median is reported (default: 3)"
    )


def run(args: argparse.Namespace) -> int:
    """Runs a measurement, or compares results."""
    actions = {
        "train": _train,
        "infer": _infer,
        "data": _data,
        "suite": run_suite_command,
        "compare": _compare,
    }
    return actions[args.action](args)


def _train(args: argparse.Namespace) -> int:
    return bench_training(
        args,
        _repetition(args),
        data=_wanted_data(args, default="auto"),
        output=args.output,
        command=_command("train", args),
    )


def _repetition(args: argparse.Namespace) -> Repetition:
    return Repetition(
        warmup_steps=args.warmup_steps, steps=args.steps, repeats=args.repeats, most_s=args.seconds
    )


def _wanted_data(args: argparse.Namespace, *, default: str) -> Any:
    """--data, or what --host-generated-data means."""
    if not args.host_generated_data:
        return args.data
    if args.data not in (default, "host"):
        raise BadInputError(
            f"--host-generated-data contradicts --data {args.data}; --data host says the same as the first."
        )
    return "host"


def _refuse_seconds(repetition: Repetition, *, ranks: int) -> None:
    """Ranks would end their repeats at different steps."""
    if repetition.most_s is not None and ranks > 1:
        raise BadInputError(
            f"--seconds {plain_number(repetition.most_s)} needs a single process, and there are {ranks} "
            "ranks; --steps 20 works."
        )


def bench_training(
    args: argparse.Namespace,
    repetition: Repetition,
    *,
    data: WantedData = "auto",
    output: str | None = None,
    command: str,
) -> int:
    """Runs `bench train`, also for `train --benchmark`."""
    path = check_output(output)
    place = find_place(os.environ)
    resolved = resolve_for_ranks(args, place, resolve=recipe_from_args)
    _refuse_seconds(repetition, ranks=rank_count(resolved.recipe))
    with Reporter(
        verbosity=resolved.recipe.verbosity, quiet=place is not None and place.rank > 0
    ) as reporter:
        with showing_progress(reporter):
            subject, splits = prepare_subject(resolved, data=data, repetition=repetition)
        from drivetrain.bench.rank_measure import measure_on_ranks
        from drivetrain.bench.train import check_stages, measure_training
        from drivetrain.bench.train_result import training_result

        for warning in subject.warnings:
            reporter.warn(warning)
        check_stages(subject.recipe, splits.spec)
        start = how_to_start(place, ranks=rank_count(subject.recipe))
        # Each rank of several opens the data itself; only a single process can use the splits opened here.
        data_here = splits if start is Start.ALONE else None
        del splits
        measured = measure_on_ranks(
            partial(measure_training, subject, data=data_here),
            recipe=subject.recipe,
            devices_per_replica=devices_per_replica(subject.recipe),
            place=place,
            reporter=reporter,
        )
        if place is None or place.rank == 0:
            for warning in measured.warnings:
                reporter.warn(warning)
            _finish(training_result(subject, measured, command=command), path, reporter)
    return 0


def _infer(args: argparse.Namespace) -> int:
    repetition, path = _repetition(args), check_output(args.output)
    for size in args.batch_sizes:
        if size < 1:
            raise BadInputError(f"--batch-sizes {size} must be at least 1; --batch-sizes 1 16 works.")
    data = _wanted_data(args, default="device")
    place = find_place(os.environ)
    resolved = resolve_for_ranks(args, place, resolve=_recipe_for_inference)
    _refuse_seconds(repetition, ranks=resolved.recipe.replicas)
    if args.captured:
        _check_captured(resolved.recipe)
    from drivetrain.bench.infer import InferSettings, measure_inference
    from drivetrain.bench.rank_measure import measure_on_ranks

    settings = InferSettings(
        batch_sizes=tuple(dict.fromkeys(args.batch_sizes)),
        repetition=repetition,
        folds=args.fold_batch_norm is not False,
        run=None if args.run is None else Path(args.run),
        checkpoint=args.checkpoint,
        data=data,
        captures=bool(args.captured),
    )
    quiet = place is not None and place.rank > 0
    with Reporter(verbosity=resolved.recipe.verbosity, quiet=quiet) as reporter:
        given = Given(resolved.recipe, resolved.origins)
        idle = idle_warnings(given, command="bench infer", measurement=Measuring.INFERENCE)
        # Replicas make a training's global batch larger; inference has none.
        told = [warning for warning in resolved.warnings if not warning.startswith("--replicas ")]
        for warning in (*told, *idle):
            reporter.warn(warning)
        result = measure_on_ranks(
            partial(measure_inference, resolved, settings, command=_command("infer", args)),
            recipe=resolved.recipe,
            devices_per_replica=1,
            place=place,
            reporter=reporter,
        )
        if not quiet:
            _finish(result, path, reporter)
    return 0


def _check_captured(recipe: Recipe) -> None:
    if recipe.compile != "off":
        raise BadInputError(
            "--captured is for a model that is not compiled, as compiled ones are captured anyway; "
            "--captured --compile off works."
        )
    from drivetrain.devices.device import choose_device

    kind = choose_device(recipe.device).torch_device.type
    if kind != "cuda":
        raise BadInputError(f"--captured needs a CUDA device, this is {kind}; leave it out.")


def _recipe_for_inference(args: argparse.Namespace) -> ResolvedRecipe:
    """The recipe that was typed, or that of RUN with the typed device, precision and compilation.

    Replicas count only if they are typed: those of a recipe belong to its training.
    """
    resolved = _recipe_of_model_or_run(args)
    given = Given(resolved.recipe, resolved.origins)
    if given.is_typed("replicas") or given.is_typed("devices"):
        return resolved
    return replace(resolved, recipe=resolved.recipe.model_copy(update={"replicas": 1}))


def _recipe_of_model_or_run(args: argparse.Namespace) -> ResolvedRecipe:
    if args.run is None:
        if args.checkpoint != "newest":
            raise BadInputError(f"--checkpoint {args.checkpoint} needs a RUN; name one, or leave it out.")
        return recipe_from_args(args)
    directory = open_run(args.run)
    for name in ("config", "config_path"):
        if getattr(args, name) is not None:
            raise BadInputError(
                f"{option_name(name)} has no effect, as RUN {args.run} has its own recipe; leave it out."
            )
    for key in typed_overrides(args):
        if require_target(key).field not in {*fields_with(Fact.COMPUTING), "replicas", "devices"}:
            raise BadInputError(
                f"{option_name(key)} has no effect on RUN {args.run}, which has its own recipe; only "
                "--precision, --compile, --device and the like may be given."
            )
    return recipe_from_args(args, base=read_recipe_yaml(directory.recipe))


def _data(args: argparse.Namespace) -> int:
    repetition = Repetition(warmup_steps=args.warmup_steps, steps=args.steps, repeats=args.repeats)
    path = check_output(args.output)
    if args.needed is not None and not 0 < args.needed < math.inf:
        raise BadInputError(
            f"--needed {plain_number(args.needed)} must be a number above 0; --needed 500 works."
        )
    place = find_place(os.environ)
    resolved = resolve_for_ranks(args, place, resolve=recipe_from_args)
    if place is not None and stage_count(resolved.recipe) > 1:
        raise BadInputError(
            f"bench data needs one rank per replica, but {stage_count(resolved.recipe)} stages share the "
            f"ranks that {place.launcher} started; --stages 1 works."
        )
    from drivetrain.bench.delivery import delivery_result, keeps_up, measure_delivery
    from drivetrain.bench.rank_measure import measure_on_ranks

    quiet = place is not None and place.rank > 0
    with Reporter(verbosity=resolved.recipe.verbosity, quiet=quiet) as reporter:
        given = Given(resolved.recipe, resolved.origins)
        idle = idle_warnings(given, command="bench data", measurement=Measuring.DELIVERY)
        for warning in (*resolved.warnings, *idle):
            reporter.warn(warning)
        measured = measure_on_ranks(
            partial(measure_delivery, resolved, repetition),
            recipe=resolved.recipe,
            devices_per_replica=1,
            place=place,
            reporter=reporter,
        )
        if not quiet:
            command = _command("data", args)
            result = delivery_result(resolved, measured, repetition, command=command, needed=args.needed)
            _finish(result, path, reporter)
            if args.needed is not None:
                reporter.result(keeps_up(result, needed=args.needed))
    return 0


def _compare(args: argparse.Namespace) -> int:
    from drivetrain.bench.compare import compare_files
    from drivetrain.bench.suite.speedups import is_suite

    if any(is_suite(path) for path in args.files):
        return compare_suite_files(args)
    for option, value in (("--figure", args.figure), ("--intensity", args.intensity)):
        if value is not None:
            raise BadInputError(
                f"{option} {value} is for results of suites, and {args.files[0]} is none; leave it out."
            )
    picture = check_output(args.picture or _PICTURE, option="--picture", suffixes=(".png",))
    output = check_output(args.output, suffixes=(".json",))
    comparison = compare_files(args.files)
    from drivetrain.bench.compare import draw_comparison
    from drivetrain.console.tables import text_table
    from drivetrain.core.files import write_json

    with Reporter() as reporter:
        for warning in comparison.warnings:
            reporter.warn(warning)
        for line in (*text_table(comparison.rows()), *comparison.differences):
            reporter.result(line)
        assert picture is not None
        draw_comparison(comparison, picture)
        if output is not None:
            write_json(output, comparison.to_json())
        written = ", ".join(str(path) for path in (picture, output) if path is not None)
        reporter.say(f"written: {written}")
    return 0


def _finish(result: "BenchResult", path: Path | None, reporter: Reporter) -> None:
    for line in result_lines(result):
        reporter.result(line)
    if path is not None:
        write_result(result, path)
        reporter.say(f"written: {path}")


def _command(action: str, args: argparse.Namespace) -> str:
    words = ["drivetrain", "bench", action, *([args.run] if getattr(args, "run", None) is not None else [])]
    given = {name: getattr(args, name, None) for name in _OWN_OPTIONS}
    own = {
        name: plain_number(value) if isinstance(value, float) else value
        for name, value in given.items()
        if value != args.own_defaults[name]
    }
    return written_command(words, args, own=own)


def written_command(words: Sequence[str], args: argparse.Namespace, *, own: Mapping[str, Any]) -> str:
    """The command line to repeat a measurement: the typed recipe options, then the command's own."""
    values: dict[str, Any] = {"config": args.config, "config_path": args.config_path, **typed_overrides(args)}
    options = [
        [option_name(name), *map(str, value if isinstance(value, list | tuple) else [value])]
        for name, value in {**values, **own}.items()
        if value is not None
    ]
    return shlex.join([*words, *chain.from_iterable(options)])
