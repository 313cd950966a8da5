"""Checks that a schedule is complete, ordered and free of deadlock, and counts its live micro-batches.

Both transports are checked. With gloo a send never blocks its device, and a receive waits until the message
was sent. With NCCL every directed pair of devices has its own channel, on which the n-th send matches the
n-th receive, whatever either was meant for.

The rule for posting receives is: a receiver keeps one receive posted per sender, the next one in the order in
which that sender sends. It posts the following receive as soon as this one completes, no matter how far its
own table has got. A send waits for its turn on the channel without blocking the table. Since each direction
has its own channel, no send waits behind a receive of the same pair. A schedule is therefore free of deadlock
if every receive matches the message it was posted for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from drivetrain.schedules.actions import (
    Action,
    Dependencies,
    Edge,
    Kind,
    Schedule,
    ScheduleError,
    chain,
    outcome,
    walk,
)
from drivetrain.schedules.traffic import Message, Traffic, messages

__all__ = ["PostedReceives", "ScheduleError", "check_schedule", "live_micro_batches"]

PostedReceives = Mapping[int, Mapping[int, Sequence[Message]]]


def check_schedule(
    schedule: Schedule, *, edges: Sequence[Edge] | None = None, posted: PostedReceives | None = None
) -> None:
    """Raises ScheduleError unless all devices can run the table to its end.

    Without `edges` every stage feeds the next. `posted` is the order of receives per receiving device and
    sender, if it differs from the order in which the sender sends.
    """
    _check_complete(schedule)
    model_edges = chain(schedule.stages) if edges is None else edges
    dependencies = Dependencies(model_edges, stages=schedule.stages)
    _check_sends_that_never_block(schedule, dependencies)
    traffic = messages(schedule, model_edges)
    receives = posted or {device: traffic.incoming(device) for device in range(schedule.devices)}
    _check_pairs_in_order(schedule, dependencies, traffic, receives)


def live_micro_batches(schedule: Schedule) -> tuple[int, ...]:
    """Per stage, the largest number of micro-batches whose activations are kept at the same time."""
    alive = [0] * schedule.stages
    most = [0] * schedule.stages
    for row in schedule.table:
        for action in row:
            if action.kind is Kind.FORWARD:
                alive[action.stage] += 1
                most[action.stage] = max(most[action.stage], alive[action.stage])
            # INPUT does not free them: the activations are needed until WEIGHT has run.
            elif action.kind is not Kind.INPUT:
                alive[action.stage] -= 1
    return tuple(most)


def _check_complete(schedule: Schedule) -> None:
    """Checks that every stage runs each micro-batch once: F, and either B or both I and W."""
    seen: Counter[Action] = Counter()
    for device, row in enumerate(schedule.table):
        for action in row:
            _check_place(schedule, device, action)
            seen[action] += 1
            if seen[action] > 1:
                raise ScheduleError(f"Device {device} lists {action} twice.")
    for stage, device in enumerate(schedule.device_of):
        for micro_batch in range(schedule.micro_batches):
            _check_kinds(seen, device, stage, micro_batch)


def _check_place(schedule: Schedule, device: int, action: Action) -> None:
    if not 0 <= action.stage < schedule.stages:
        raise ScheduleError(f"Device {device} lists {action}, but the last stage is {schedule.stages - 1}.")
    if not 0 <= action.micro_batch < schedule.micro_batches:
        last = schedule.micro_batches - 1
        raise ScheduleError(f"Device {device} lists {action}, but the last micro-batch is {last}.")
    home = schedule.device_of[action.stage]
    if home != device:
        raise ScheduleError(f"Device {device} lists {action}, whose stage is on device {home}.")


def _check_kinds(seen: Counter[Action], device: int, stage: int, micro_batch: int) -> None:
    forward, whole, of_input, weight = (
        Action(kind, stage, micro_batch) for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT, Kind.WEIGHT)
    )
    if not seen[forward]:
        raise ScheduleError(f"Device {device} never lists {forward}.")
    if seen[whole] and (seen[of_input] or seen[weight]):
        part = of_input if seen[of_input] else weight
        raise ScheduleError(f"Device {device} lists {whole} and also {part}, which is a part of it.")
    if seen[whole]:
        return
    if not seen[of_input] and not seen[weight]:
        raise ScheduleError(f"Device {device} never lists {whole}.")
    for part in (of_input, weight):
        if not seen[part]:
            raise ScheduleError(f"Device {device} never lists {part}.")


def _check_sends_that_never_block(schedule: Schedule, dependencies: Dependencies) -> None:
    """Checks the table under the rules of gloo: an action only waits for the results that it needs."""
    done: set[Action] = set()

    def is_ready(device: int, index: int) -> bool:
        return done.issuperset(dependencies.needs(schedule.table[device][index]))

    def perform(device: int, index: int) -> None:
        done.add(outcome(schedule.table[device][index]))

    reached = walk(schedule, is_ready=is_ready, perform=perform)
    stuck = [
        (device, row[reached[device]], need)
        for device, row in enumerate(schedule.table)
        if reached[device] < len(row)
        for need in dependencies.needs(row[reached[device]])
        if need not in done
    ]
    if stuck:
        # Name a device that waits for its own later action: it is the cause, and others wait because of it.
        device, action, need = min(stuck, key=lambda wait: schedule.device_of[wait[2].stage] != wait[0])
        raise ScheduleError(f"Device {device} waits forever at {action}: {need} does not come before it.")


def _check_pairs_in_order(
    schedule: Schedule, dependencies: Dependencies, traffic: Traffic, posted: PostedReceives
) -> None:
    """Checks the table under the rules of NCCL: the n-th send of a pair meets the n-th posted receive."""
    channels = _Channels(posted)
    done: set[Action] = set()

    def is_ready(device: int, index: int) -> bool:
        here = (
            need
            for need in dependencies.needs(schedule.table[device][index])
            if schedule.device_of[need.stage] == device
        )
        return done.issuperset(here) and channels.arrived.issuperset(traffic.before(device, index))

    def perform(device: int, index: int) -> None:
        action = schedule.table[device][index]
        done.add(outcome(action))
        for message in traffic.after(device, index):
            channels.send(message, after=action)

    reached = walk(schedule, is_ready=is_ready, perform=perform)
    for device, row in enumerate(schedule.table):
        if reached[device] < len(row):
            raise ScheduleError(f"Device {device} waits forever at {row[reached[device]]} for a message.")
    channels.check_all_met()


class _Channels:
    """One channel per directed pair of devices; the n-th send matches the n-th posted receive."""

    def __init__(self, posted: PostedReceives) -> None:
        self._posted = posted
        self._met: Counter[tuple[int, int]] = Counter()
        self.arrived: set[Message] = set()

    def send(self, message: Message, *, after: Action) -> None:
        sender, receiver = message.from_device, message.to_device
        posted = self._posted.get(receiver, {}).get(sender, ())
        turn = self._met[sender, receiver]
        met = posted[turn] if turn < len(posted) else None
        if met != message:
            expected = "no receive" if met is None else f"the receive of {met}"
            raise ScheduleError(
                f"Device {sender} sends {message} after {after}, "
                f"but it matches {expected} on device {receiver}."
            )
        self._met[sender, receiver] += 1
        self.arrived.add(message)

    def check_all_met(self) -> None:
        for receiver, by_sender in self._posted.items():
            for sender, posted in by_sender.items():
                turn = self._met[sender, receiver]
                if turn < len(posted):
                    raise ScheduleError(
                        f"Device {receiver} posts a receive of {posted[turn]}, "
                        f"which device {sender} never sends."
                    )
