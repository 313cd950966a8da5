"""`train --benchmark --warmup-steps N`: another way to write `bench train`, known from other systems."""

import argparse

from drivetrain.bench.repetition import Repetition
from drivetrain.cli.bench import bench_training, written_command
from drivetrain.cli.options import replace_overrides, typed_overrides
from drivetrain.cli.parsing.switch import add_switch
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.aliases import require_target
from drivetrain.recipe.merging import Setting, layer_of
from drivetrain.recipe.messages import COMMAND_LINE

__all__ = ["add_benchmark_options", "bench_instead", "is_benchmark"]

_WARMUP_STEPS = 10
_STEPS, _REPEATS = 20, 3


def add_benchmark_options(parser: argparse.ArgumentParser) -> None:
    """Adds --benchmark and --warmup-steps to `train`."""
    group = parser.add_argument_group("benchmark", "see also `drivetrain bench train --help`")
    add_switch(group, "--benchmark", "measure the speed of training like `bench train`; no run is saved")
    group.add_argument(
        "--warmup-steps",
        type=int,
        metavar="N",
        help="warm-up updates before measuring, included in --max-updates "
        f"(only with --benchmark; default: {_WARMUP_STEPS})",
    )


def is_benchmark(args: argparse.Namespace) -> bool:
    """Whether --benchmark was given; refuses --warmup-steps without it."""
    if args.warmup_steps is not None and not args.benchmark:
        raise BadInputError(
            f"--warmup-steps {args.warmup_steps} has no effect without --benchmark; leave it out."
        )
    return bool(args.benchmark)


def bench_instead(args: argparse.Namespace) -> int:
    """Runs the benchmark. With --max-updates, the updates after the warm-up are measured once."""
    warmup_steps = _WARMUP_STEPS if args.warmup_steps is None else args.warmup_steps
    typed = typed_overrides(args)
    lengths = {key: value for key, value in typed.items() if require_target(key).field == "max_updates"}
    replace_overrides(args, {key: value for key, value in typed.items() if key not in lengths})
    if lengths:
        settings = [Setting(key, value, COMMAND_LINE) for key, value in lengths.items()]
        steps = _whole(layer_of(settings, may_repeat=True).values["max_updates"]) - warmup_steps
        if steps < 1:
            raise BadInputError(
                f"--max-updates must be more than --warmup-steps {warmup_steps}; --max-updates "
                f"{warmup_steps + _STEPS} works."
            )
        repetition = Repetition(warmup_steps=warmup_steps, steps=steps, repeats=1)
    else:
        repetition = Repetition(warmup_steps=warmup_steps, steps=_STEPS, repeats=_REPEATS)
    own = {"warmup_steps": warmup_steps, **lengths}
    command = written_command(["drivetrain", "train", "--benchmark"], args, own=own)
    return bench_training(args, repetition, command=command)


def _whole(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        raise BadInputError(f"--max-updates {text} is not a whole number; --max-updates 30 works.") from None
