"""The reporter of a cross-validation: prints nothing, not even the fold, before a fold passed its checks."""

from drivetrain.console.reporter import Reporter, VerbosityName

__all__ = ["CrossvalReporter"]


class CrossvalReporter(Reporter):
    """Holds messages back until another one follows, so that a refused request prints only its error."""

    def __init__(self, *, verbosity: VerbosityName, quiet: bool = False) -> None:
        super().__init__(verbosity=verbosity, quiet=quiet)
        self._held_back: list[str] = []

    def hold_back(self, text: str) -> None:
        """Keeps a message until the next one is printed."""
        self._held_back.append(text)

    def say_held_back(self) -> None:
        """Prints all held-back messages; for output that does not go through here, such as that of ranks."""
        while self._held_back:
            super().say(self._held_back.pop(0))

    def say(self, text: str) -> None:
        self.say_held_back()
        super().say(text)

    def result(self, text: str) -> None:
        self.say_held_back()
        super().result(text)

    def detail(self, text: str) -> None:
        self.say_held_back()
        super().detail(text)

    @property
    def _may_break_silence(self) -> bool:
        return not self._held_back
