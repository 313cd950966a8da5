"""Proves a table complete, ordered and free of deadlock, and counts what it keeps alive.

Two transports are proved. On gloo a send never holds up its device and a receive waits until the message
was sent. Under NCCL every directed pair of devices has a channel of its own on which the n-th send meets
the n-th receive, whatever they are meant for. The posting rule is: a receiver keeps one receive posted per
sender, the next in that sender's sending order, and posts the following one as soon as it has completed,
wherever its table stands; a send waits for its turn on the channel and does not hold up the table. With one
channel per direction no send waits behind a receive of the same pair, so a table is free of deadlock when
every receive meets the message it was posted for.
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
    """Raise ScheduleError unless all devices can carry the table out to its end.

    Without `edges` every stage feeds the next. `posted` holds, per receiving device and per sender, the
    order of the receives, where it is not the order in which the sender sends.
    """
    _check_complete(schedule)
    model_edges = chain(schedule.stages) if edges is None else edges
    dependencies = Dependencies(model_edges, stages=schedule.stages)
    _check_sends_that_never_block(schedule, dependencies)
    traffic = messages(schedule, model_edges)
    receives = posted or {device: traffic.incoming(device) for device in range(schedule.devices)}
    _check_pairs_in_order(schedule, dependencies, traffic, receives)


def live_micro_batches(schedule: Schedule) -> tuple[int, ...]:
    """Per stage, the largest number of micro-batches between their forward and the end of their backward."""
    alive = [0] * schedule.stages
    most = [0] * schedule.stages
    for row in schedule.table:
        for action in row:
            if action.kind is Kind.FORWARD:
                alive[action.stage] += 1
                most[action.stage] = max(most[action.stage], alive[action.stage])
            elif action.kind is not Kind.INPUT:
                alive[action.stage] -= 1
    return tuple(most)


def _check_complete(schedule: Schedule) -> None:
    """Every stage and micro-batch has F once, and either B once or I and W once, on the stage's device."""
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
        raise ScheduleError(f"Device {device} lists {action}, but the stages end at {schedule.stages - 1}.")
    if not 0 <= action.micro_batch < schedule.micro_batches:
        last = schedule.micro_batches - 1
        raise ScheduleError(f"Device {device} lists {action}, but the micro-batches end at {last}.")
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
        # A device that waits for itself is the cause; the others wait in consequence.
        device, action, need = min(stuck, key=lambda wait: schedule.device_of[wait[2].stage] != wait[0])
        raise ScheduleError(f"Device {device} waits for ever at {action}: {need} does not come before.")


def _check_pairs_in_order(
    schedule: Schedule, dependencies: Dependencies, traffic: Traffic, posted: PostedReceives
) -> None:
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
            raise ScheduleError(f"Device {device} waits for ever at {row[reached[device]]} for a message.")
    channels.check_all_met()


class _Channels:
    """One channel per directed pair of devices; the n-th send meets the n-th posted receive."""

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
                f"but it meets {expected} on device {receiver}."
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
