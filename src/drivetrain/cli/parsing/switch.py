"""Options shared by several commands: boolean switches and --compile."""

import argparse

_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def add_switch(container: argparse._ActionsContainer, option: str, help_text: str) -> None:
    """Adds a flag that also accepts True or False; it is None if left out."""
    container.add_argument(option, nargs="?", const=True, type=parse_switch, metavar="BOOL", help=help_text)


def add_compile(container: argparse._ActionsContainer) -> None:
    """Adds --compile for commands that run a trained model over images."""
    container.add_argument(
        "--compile",
        choices=("auto", "on", "off"),
        default="auto",
        help="compile the model with torch.compile; auto: only if compiling saves more "
        "time than it costs (default: auto)",
    )


def parse_switch(text: str) -> bool:
    """The boolean value of a switch; raises ValueError for other text."""
    if text.lower() not in _TRUTHS:
        raise ValueError(text)
    return _TRUTHS[text.lower()]
