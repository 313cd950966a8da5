"""What a cross-validation says: nothing, not even which fold comes, before a fold is certain to begin."""

from drivetrain.console.reporter import Reporter, VerbosityName

__all__ = ["CrossvalReporter"]


class CrossvalReporter(Reporter):
    """Can hold messages back until another one follows: of a request that is refused, none does."""

    def __init__(self, *, verbosity: VerbosityName, quiet: bool = False) -> None:
        super().__init__(verbosity=verbosity, quiet=quiet)
        self._held_back: list[str] = []

    def hold_back(self, text: str) -> None:
        """A message that comes ahead of the next one."""
        self._held_back.append(text)

    def say_held_back(self) -> None:
        """For what speaks in another way, as the ranks of a fold do."""
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
