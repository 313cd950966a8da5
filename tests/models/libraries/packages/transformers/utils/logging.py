"""What the library prints."""

shown = {"level": 30, "progress": True}


def get_verbosity() -> int:
    return int(shown["level"])


def set_verbosity(level: int) -> None:
    shown["level"] = level


def set_verbosity_error() -> None:
    shown["level"] = 40


def is_progress_bar_enabled() -> bool:
    return bool(shown["progress"])


def disable_progress_bar() -> None:
    shown["progress"] = False


def enable_progress_bar() -> None:
    shown["progress"] = True
