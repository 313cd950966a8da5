"""Options of a command that are on, off, or left to what a run says."""

import argparse

_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def add_switch(container: argparse._ActionsContainer, option: str, help_text: str) -> None:
    """A flag that may also be given True or False; None where it is left out."""
    container.add_argument(option, nargs="?", const=True, type=parse_switch, metavar="BOOL", help=help_text)


def add_compile(container: argparse._ActionsContainer) -> None:
    """How a trained model runs over many images."""
    container.add_argument(
        "--compile",
        choices=("auto", "on", "off"),
        default="auto",
        help="compile the model first; auto: where the images left take longer than that would save",
    )


def parse_switch(text: str) -> bool:
    """What follows such a flag, or a ValueError."""
    if text.lower() not in _TRUTHS:
        raise ValueError(text)
    return _TRUTHS[text.lower()]
