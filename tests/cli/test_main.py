"""The front: commands, exit statuses, one line of error, and no torch where none is needed."""

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

import pytest

import drivetrain
from drivetrain.cli.main import COMMANDS, Command, main
from drivetrain.core.errors import BadInputError, DrivetrainError, RunFailedError

Capture = pytest.CaptureFixture[str]
Install = Callable[[Callable[[argparse.Namespace], int]], None]

FAKE_MODULE = "drivetrain_fake_command"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a command `fake` with one option in front of the given function."""

    def put(run: Callable[[argparse.Namespace], int]) -> None:
        def add_arguments(parser: argparse.ArgumentParser) -> None:
            parser.add_argument("--some-value", default="nothing", help="100 %% of it")

        module = ModuleType(FAKE_MODULE)
        module.__dict__.update(add_arguments=add_arguments, run=run)
        monkeypatch.setitem(sys.modules, FAKE_MODULE, module)
        monkeypatch.setitem(COMMANDS, "fake", Command(FAKE_MODULE, "a fake"))

    return put


def _raising(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


def _python(code: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(capsys: Capture, argv: list[str]) -> None:
    assert main(argv) == 0
    written = capsys.readouterr()
    assert written.out.startswith("usage: drivetrain COMMAND")
    assert all(f"\n  {name} " in written.out for name in COMMANDS)
    assert written.err == ""


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"drivetrain {drivetrain.__version__}\n"


def test_the_commands_of_the_front() -> None:
    names = [
        "train",
        "crossval",
        "evaluate",
        "predict",
        "export",
        "plan",
        "verify",
        "bench",
        "monitor",
        "runs",
        "report",
        "recipes",
        "models",
        "data",
        "doctor",
    ]
    assert list(COMMANDS) == names


def test_a_command_gets_its_arguments_and_gives_its_status(install: Install) -> None:
    seen: list[str] = []

    def run(args: argparse.Namespace) -> int:
        seen.append(args.some_value)
        return 7

    install(run)
    assert main(["fake", "--some_value", "x_y"]) == 7
    assert main(["fake", "--some-value=z"]) == 7
    assert main(["fake"]) == 7
    assert seen == ["x_y", "z", "nothing"]


def test_help_of_a_command(install: Install, capsys: Capture) -> None:
    install(lambda args: 1)
    assert main(["fake", "--help"]) == 0
    assert "usage: drivetrain fake" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (BadInputError("--a is wrong."), 2, "drivetrain fake: error: --a is wrong.\n"),
        (RunFailedError("the disk\nis full."), 1, "drivetrain fake: error: the disk is full.\n"),
        (DrivetrainError("no."), 1, "drivetrain fake: error: no.\n"),
        (KeyboardInterrupt(), 130, "drivetrain fake: interrupted\n"),
    ],
)
def test_errors_are_one_line_and_a_status(
    install: Install, capsys: Capture, error: BaseException, status: int, line: str
) -> None:
    install(_raising(error))
    assert main(["fake"]) == status
    assert capsys.readouterr().err == line


def test_a_bug_keeps_its_traceback(install: Install) -> None:
    install(_raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["fake"])


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (
            ["trian"],
            "drivetrain: error: trian is not a command. Did you mean train? "
            f"Commands: {', '.join(COMMANDS)}.\n",
        ),
        (
            ["--seed", "3"],
            "drivetrain: error: --seed must come after a command, as in `drivetrain train --seed`.\n",
        ),
    ],
)
def test_unknown_commands(capsys: Capture, argv: list[str], line: str) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err == line


def test_a_wrong_option_of_a_command(install: Install, capsys: Capture) -> None:
    install(lambda args: 0)
    assert main(["fake", "--some-valu", "3"]) == 2
    assert (
        capsys.readouterr().err
        == "drivetrain fake: error: --some-valu is not an option. Did you mean --some-value?\n"
    )


WITHOUT_TORCH = """\
import sys
from drivetrain.cli.main import main
status = main(sys.argv[1:])
assert "torch" not in sys.modules, "torch was imported"
sys.exit(status)
"""


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["--help"], 0),
        (["recipes", "--help"], 0),
        (["doctor", "--help"], 0),
        (["monitor", "--once"], 0),
        (["recipes", "list"], 0),
        (["recipes", "show", "mnist_tutorial"], 0),
        (["recipes", "show", "--micro-batch-size", "0"], 2),
        (["recipes", "show", "--model", "foo"], 2),
        (["nothing"], 2),
    ],
)
def test_torch_is_not_imported(argv: list[str], status: int) -> None:
    done = _python(WITHOUT_TORCH, argv)
    assert done.returncode == status, done.stderr
    assert done.stderr.count("\n") == (0 if status == 0 else 1)


def test_a_training_imports_no_library_that_few_trainings_need() -> None:
    """They take a third of a second, in every rank."""
    code = "import sys, drivetrain.cli.train, drivetrain.run.start; print(*sys.modules)"
    loaded = set(_python(code, []).stdout.split())
    assert "torch" in loaded
    assert not loaded & {"scipy", "skimage", "sklearn", "matplotlib", "tensorboard"}


def test_only_the_chosen_command_is_imported() -> None:
    code = (
        "import sys; from drivetrain.cli.main import main, COMMANDS; main(['recipes', 'list']);"
        "print([c.module for c in COMMANDS.values() if c.module in sys.modules])"
    )
    assert _python(code, []).stdout.splitlines()[-1] == "['drivetrain.cli.recipes']"


def test_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "drivetrain", "recipes", "show", "--zzzz"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "drivetrain recipes show: error: --zzzz is not an option.\n"


def test_a_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "drivetrain", "recipes", "show", "digits"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 1
