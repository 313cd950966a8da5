"""The errors a person sees; everything else is a bug and keeps its traceback."""


class DrivetrainError(Exception):
    """One clear sentence for the user; `exit_status` is what the command line ends with."""

    exit_status = 1

    def __init__(self, sentence: str) -> None:
        # What a user typed may hold line breaks of any kind; the answer is one line all the same.
        super().__init__(" ".join(sentence.splitlines()))


class BadInputError(DrivetrainError):
    """What was asked for cannot be done; raised before anything is written or trained."""

    exit_status = 2


class RunFailedError(DrivetrainError):
    """The work began and could not go on."""
