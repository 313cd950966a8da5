"""A reporter that prints nothing and remembers which work was shown."""

from drivetrain.console.reporter import Reporter

__all__ = ["ShownWork"]


class ShownWork(Reporter):
    """`names` in the order of their beginnings, `ended` of their ends; `counted` is all progress of each."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.names: list[str] = []
        self.ended: list[str] = []
        self.counted: dict[str, list[int]] = {}
        self.totals: dict[str, int | None] = {}
        self.said: list[str] = []
        self._open: list[str] = []

    def start_progress(self, what: str, *, done: int = 0, total: int | None = None) -> None:
        super().start_progress(what, done=done, total=total)
        self.names.append(what)
        self.totals[what] = total
        self._open.append(what)

    def progress_due(self) -> bool:
        return True

    def progress(self, done: int, detail: str = "") -> None:
        super().progress(done, detail)
        self.counted.setdefault(self._open[-1], []).append(done)

    def stop_progress(self, *, is_done: bool = True) -> None:
        super().stop_progress(is_done=is_done)
        if self._open:
            name = self._open.pop()
            self.ended += [name] if is_done else []

    def say(self, text: str) -> None:
        super().say(text)
        self.said.append(text)
