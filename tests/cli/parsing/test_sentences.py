"""The parser's own sentences read as those of the recipe's options."""

import argparse

import pytest

from drivetrain.cli.main import main
from drivetrain.cli.options import OneSentenceParser
from drivetrain.cli.parsing.switch import parse_switch

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "evaluate RUN --compile onn",
            "drivetrain evaluate: error: --compile is onn, it must be one of auto, on, off; "
            "--compile on works.",
        ),
        (
            "evaluate RUN --compile maybe",
            "drivetrain evaluate: error: --compile is maybe, it must be one of auto, on, off; "
            "--compile auto works.",
        ),
        (
            "evaluate RUN --flips maybe",
            "drivetrain evaluate: error: --flips: maybe is not a valid boolean value; --flips True works.",
        ),
        (
            "export RUN --gives logits",
            "drivetrain export: error: --gives is logits, it must be one of probabilities, classes; "
            "--gives probabilities works.",
        ),
        (
            "export RUN --tolerance x",
            "drivetrain export: error: --tolerance is x, it must be a number; --tolerance 0.0001 works.",
        ),
        (
            "predict RUN a.png --mask-format gif",
            "drivetrain predict: error: --mask-format is gif, it must be one of png, tiff; "
            "--mask-format png works.",
        ),
        (
            "bench train --data fake",
            "drivetrain bench train: error: --data is fake, it must be one of auto, real, host, device; "
            "--data auto works.",
        ),
        (
            "bench infer --batch-sizes 2 x",
            "drivetrain bench infer: error: --batch-sizes is x, it must be a whole number; "
            "--batch-sizes 1 16 works.",
        ),
        (
            "bench data --needed x",
            "drivetrain bench data: error: --needed is x, it must be a number; --needed 0.5 works.",
        ),
        (
            "bench trian",
            "drivetrain bench: error: trian is not a command. Did you mean train? "
            "Commands: train, infer, data, suite, compare.",
        ),
        (
            "data pack a b --channels x",
            "drivetrain data pack: error: --channels is x, it must be one of 1, 3; --channels 1 works.",
        ),
        (
            "data pack a b --image-size x",
            "drivetrain data pack: error: --image-size is x, it must be a whole number; "
            "--image-size 32 works.",
        ),
        (
            "data check mnist --data-dir",
            "drivetrain data check: error: --data-dir needs a value; --data-dir data works.",
        ),
        (
            "recipes show --json --yaml",
            "drivetrain recipes show: error: --yaml and --json cannot both be given; leave one out.",
        ),
    ],
)
def test_own_options_of_commands(capsys: Capture, line: str, sentence: str) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err == f"{sentence}\n"


def _even(text: str) -> int:
    if int(text) % 2:
        raise argparse.ArgumentTypeError(f"{text} is odd")
    return int(text)


def test_a_kind_without_words_speaks_for_itself(capsys: Capture) -> None:
    parser = OneSentenceParser(prog="p")
    parser.add_argument("--pair", type=_even)
    with pytest.raises(SystemExit):
        parser.parse_args(["--pair", "3"])
    assert capsys.readouterr().err == "p: error: --pair: 3 is odd.\n"
    assert parser.parse_args(["--pair", "4"]).pair == 4


def test_switches_know_six_words() -> None:
    assert [parse_switch(word) for word in ("True", "yes", "1", "FALSE", "no", "0")] == [True] * 3 + [
        False
    ] * 3
    with pytest.raises(ValueError, match="maybe"):
        parse_switch("maybe")
