"""Entry point of the command line: imports only the requested command and prints errors as one sentence."""

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from drivetrain.core.errors import BadInputError, DrivetrainError
from drivetrain.core.process_exit import skip_last_collection
from drivetrain.core.wording import did_you_mean


@dataclass(frozen=True, slots=True)
class Command:
    """A command: a module with `add_arguments(parser)` and `run(args) -> int`, and a line of help."""

    module: str
    summary: str


COMMANDS = {
    "train": Command(
        "drivetrain.cli.train", "train a recipe; the same command again continues where it stopped"
    ),
    "crossval": Command(
        "drivetrain.cli.crossval", "train every fold of a recipe; report mean and standard deviation"
    ),
    "evaluate": Command("drivetrain.cli.evaluate", "compute the metrics of a run's checkpoints"),
    "predict": Command("drivetrain.cli.predict", "predict class probabilities or masks of images with a run"),
    "export": Command("drivetrain.cli.export", "export a run's model with torch.export and ONNX"),
    "plan": Command("drivetrain.cli.plan", "print what a recipe will do, without starting it"),
    "verify": Command("drivetrain.cli.verify", "verify that a recipe's layouts compute the same result"),
    "bench": Command(
        "drivetrain.cli.bench", "measure the speed of training, inference and data loading; compare results"
    ),
    "monitor": Command(
        "drivetrain.cli.monitor", "show what the accelerators, CPUs and runs of this host are doing"
    ),
    "runs": Command("drivetrain.cli.runs", "list and compare runs"),
    "report": Command(
        "drivetrain.cli.report",
        "write one HTML page of a run or of several runs compared, or serve all pages live",
    ),
    "recipes": Command("drivetrain.cli.recipes", "list the named recipes, or show one with all its values"),
    "models": Command("drivetrain.cli.models", "list the models, or show one layer by layer"),
    "data": Command("drivetrain.cli.data", "list, download, check and pack data sets"),
    "doctor": Command("drivetrain.cli.doctor", "check whether this machine is ready for training"),
}

INTERRUPTED = 130
_SHOWN = 60


def run_process() -> int:
    """Runs one command line and prepares the end of the process; the console script calls this."""
    status = main()
    skip_last_collection()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else "--help"
    prog = f"drivetrain {name}" if name in COMMANDS else "drivetrain"
    try:
        status = _dispatch(name, arguments[1:])
        sys.stdout.flush()
    except DrivetrainError as error:
        _say(f"{prog}: error: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        _say(f"{prog}: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe, such as `head`, has closed it. Python flushes stdout again at exit, which
        # would raise the same error; /dev/null takes that flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DrivetrainError.exit_status
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        _say(f"{prog}: error: {_shortened(error.filename)} is too long for a path; give a shorter one.")
        return BadInputError.exit_status
    return status


def _shortened(path: object) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else str(path)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _dispatch(name: str, arguments: list[str]) -> int:
    if name in ("-h", "--help"):
        sys.stdout.write(_help_page())
        return 0
    if name == "--version":
        from drivetrain.core.version import VERSION

        sys.stdout.write(f"drivetrain {VERSION}\n")
        return 0
    if name not in COMMANDS:
        raise _unknown_command(name)
    return _run_command(name, arguments)


def _run_command(name: str, arguments: list[str]) -> int:
    from drivetrain.cli.options import OneSentenceParser, normalise_argv

    command = COMMANDS[name]
    module = import_module(command.module)
    parser = OneSentenceParser(prog=f"drivetrain {name}", description=command.summary)
    module.add_arguments(parser)
    try:
        args = parser.parse_args(normalise_argv(arguments))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    status: int = module.run(args)
    return status


def _unknown_command(name: str) -> BadInputError:
    if name.startswith("-"):
        return BadInputError(f"{name} must come after a command, as in `drivetrain train {name}`.")
    return BadInputError(
        f"{name} is not a command.{did_you_mean(name, COMMANDS)} Commands: {', '.join(COMMANDS)}."
    )


def _help_page() -> str:
    lines = [f"  {name:<10} {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: drivetrain COMMAND [--option VALUE ...]",
            "",
            "Trains vision models from a recipe. The layout (replicas, stages, accumulation) does not change",
            "the result.",
            "",
            "commands:",
            *lines,
            "",
            "`drivetrain COMMAND --help` lists a command's options; `drivetrain --version` the version.",
            "",
        ]
    )


def _say(message: str) -> None:
    """One line on stderr."""
    sys.stderr.write(" ".join(message.split()) + "\n")
