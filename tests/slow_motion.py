"""A clock that only a test moves, so that times can be compared on a machine that is busy."""


class SlowMotion:
    """Stands in for `time.perf_counter` and `time.sleep`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
