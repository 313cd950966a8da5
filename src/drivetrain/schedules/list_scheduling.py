"""List scheduling: a table for any device mapping; each free device takes its best available action."""

from collections.abc import Sequence

from drivetrain.schedules.actions import Action, Dependencies, Kind, chain, outcome
from drivetrain.schedules.legs import Legs, Table

__all__ = ["list_table"]

# The usual estimate for equal stages: computing the gradients of inputs, or of weights, takes as long as a
# forward pass.
_DURATION = {Kind.FORWARD: 1, Kind.BACKWARD: 2, Kind.INPUT: 1, Kind.WEIGHT: 1}


def list_table(
    legs: Legs,
    *,
    micro_batches: int,
    live_caps: Sequence[int],
    split_backward: bool,
    early_legs_first: bool,
) -> Table:
    """Builds a table that prefers backward to forward passes, and forward passes to weight gradients.

    `live_caps` limits the live micro-batches of each leg. The loop always ends: every leg takes micro-batches
    in order, so the oldest unfinished one either finds room on its next leg or can run backward.
    """
    backward = (Kind.INPUT, Kind.WEIGHT) if split_backward else (Kind.BACKWARD,)
    listing = _Listing(
        legs,
        micro_batches=micro_batches,
        live_caps=live_caps,
        kinds=(Kind.FORWARD, *backward),
        early_legs_first=early_legs_first,
    )
    while not listing.is_complete():
        listing.start_what_can()
        listing.wait()
    return tuple(tuple(row) for row in listing.rows)


class _Listing:
    """The state of list scheduling: the clock, what each leg has started, and the rows so far."""

    def __init__(
        self,
        legs: Legs,
        *,
        micro_batches: int,
        live_caps: Sequence[int],
        kinds: tuple[Kind, ...],
        early_legs_first: bool,
    ) -> None:
        self._legs = legs
        self._micro_batches = micro_batches
        self._live_caps = live_caps
        self._kinds = kinds
        self._dependencies = Dependencies(chain(legs.count), stages=legs.count)
        self._started = {kind: [0] * legs.count for kind in kinds}
        self._ends: dict[Action, int] = {}
        self._free = [0] * legs.devices
        self._now = 0
        self._leg_sign = 1 if early_legs_first else -1
        self.rows: list[list[Action]] = [[] for _ in range(legs.devices)]

    def is_complete(self) -> bool:
        return all(count == self._micro_batches for count in self._started[self._kinds[-1]])

    def start_what_can(self) -> None:
        for device, free_at in enumerate(self._free):
            able = self._able(device) if free_at <= self._now else []
            if able:
                self._start(device, min(able, key=self._rank))

    def wait(self) -> None:
        """Advances the clock to the next moment at which a device becomes free."""
        self._now = min((free_at for free_at in self._free if free_at > self._now), default=self._now)

    def _able(self, device: int) -> list[Action]:
        candidates = (
            Action(kind, leg, self._started[kind][leg])
            for leg, home in enumerate(self._legs.device_of)
            if home == device
            for kind in self._kinds
        )
        return [action for action in candidates if self._is_able(action)]

    def _is_able(self, action: Action) -> bool:
        if action.micro_batch == self._micro_batches:
            return False
        if action.kind is Kind.FORWARD and self._live(action.stage) == self._live_caps[action.stage]:
            return False
        needs = self._dependencies.needs(action)
        return all(need in self._ends and self._ends[need] <= self._now for need in needs)

    def _live(self, leg: int) -> int:
        return self._started[Kind.FORWARD][leg] - self._started[self._kinds[-1]][leg]

    def _rank(self, action: Action) -> tuple[int, int, int]:
        # Backward passes first, since they free activations and other devices wait for their gradients.
        # Weight gradients last, since no other action waits for them.
        if action.kind is Kind.FORWARD:
            return (1, self._leg_sign * action.stage, action.micro_batch)
        if action.kind is Kind.WEIGHT:
            return (2, action.micro_batch, action.stage)
        return (0, action.micro_batch, -action.stage)

    def _start(self, device: int, action: Action) -> None:
        duration = _DURATION[action.kind] * len(self._legs.stages[action.stage])
        self._free[device] = self._now + duration
        self._ends[outcome(action)] = self._free[device]
        self._started[action.kind][action.stage] += 1
        self.rows[device].append(action)
