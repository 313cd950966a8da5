"""Options of a command that are on, off, or left to what a run says."""

import argparse

_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def add_switch(container: argparse._ActionsContainer, option: str, help_text: str) -> None:
    """A flag that may also be given True or False; None where it is left out."""
    container.add_argument(option, nargs="?", const=True, type=_switch, metavar="BOOL", help=help_text)


def add_compile(container: argparse._ActionsContainer) -> None:
    """How a trained model runs over many images."""
    container.add_argument(
        "--compile",
        choices=("auto", "on", "off"),
        default="auto",
        help="compile the model first; auto: where the images left take longer than that would save",
    )


def _switch(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise argparse.ArgumentTypeError(f"'{text}' is neither True nor False")
    return _TRUTHS[text.lower()]
