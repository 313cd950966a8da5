"""The errors that users see; any other exception is a bug and keeps its traceback."""


class DrivetrainError(Exception):
    """An error whose message is one sentence for the user; `exit_status` is that of the command."""

    exit_status = 1

    def __init__(self, sentence: str) -> None:
        # Values typed by the user may contain line breaks of any kind; the message must stay one line.
        super().__init__(" ".join(sentence.splitlines()))


class BadInputError(DrivetrainError):
    """The request is invalid; raised before anything is written or trained."""

    exit_status = 2


class RunFailedError(DrivetrainError):
    """The work started but could not be finished."""
