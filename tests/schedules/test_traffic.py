"""Messages: one per edge, micro-batch and direction, in the order of the sender's table."""

from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.schedules.actions import Edge
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.traffic import Message, messages
from tests.schedules.tables import mappings, micro_batch_counts, names, skips

EDGES = (Edge("up", 0, 1), Edge("skip", 0, 2), Edge("skip", 0, 3), Edge("mid", 1, 2), Edge("out", 2, 3))


def _short(sent: tuple[Message, ...]) -> list[str]:
    return [f"{'d' if one.is_gradient else ''}{one.value}{one.micro_batch}>{one.to_stage}" for one in sent]


def test_messages_of_skips_with_several_consumers() -> None:
    schedule = build_schedule("gpipe", micro_batches=1, device_of=(0, 1, 2, 0))
    traffic = messages(schedule, EDGES)
    assert [str(action) for action in schedule.table[0]] == ["F0@0", "F0@3", "B0@3", "B0@0"]
    assert [_short(traffic.before(0, index)) for index in range(4)] == [
        [],
        ["out0>3"],
        [],
        ["dup0>0", "dskip0>0"],
    ]
    assert [_short(traffic.after(0, index)) for index in range(4)] == [
        ["up0>1", "skip0>2"],
        [],
        ["dout0>2"],
        [],
    ]
    assert {sender: _short(sent) for sender, sent in traffic.incoming(2).items()} == {
        0: ["skip0>2", "dout0>2"],
        1: ["mid0>2"],
    }


def test_gradients_of_several_consumers_are_messages_of_their_own() -> None:
    schedule = build_schedule("gpipe", micro_batches=1, device_of=(0, 1, 2, 3))
    before_backward = messages(schedule, EDGES).before(0, 1)
    assert _short(before_backward) == ["dup0>0", "dskip0>0", "dskip0>0"]
    assert [one.from_device for one in before_backward] == [1, 2, 3]


def test_bytes_of_an_update() -> None:
    schedule = build_schedule("1f1b", micro_batches=3, device_of=(0, 1, 2, 2))
    traffic = messages(schedule, EDGES)
    bytes_of = {"up": 1, "skip": 10, "mid": 100, "out": 1000}
    between = {
        (sender, receiver): sum(bytes_of[message.value] for message in arriving)
        for receiver in range(3)
        for sender, arriving in traffic.incoming(receiver).items()
    }
    assert between == {
        (0, 1): 3, (1, 0): 3, (0, 2): 60, (2, 0): 60, (1, 2): 300, (2, 1): 300,
    }  # fmt: skip
    assert [traffic.bytes_from_stage(stage, bytes_of=bytes_of) for stage in range(4)] == [63, 303, 330, 30]


@settings(max_examples=40)
@given(name=names, micro_batches=micro_batch_counts, device_of=mappings(), data=st.data())
def test_what_is_sent_is_what_is_awaited(
    name: str, micro_batches: int, device_of: tuple[int, ...], data: st.DataObject
) -> None:
    edges = data.draw(skips(len(device_of)))
    schedule = build_schedule(name, micro_batches=micro_batches, device_of=device_of)
    traffic = messages(schedule, edges)
    places = [(device, index) for device, row in enumerate(schedule.table) for index in range(len(row))]
    awaited = [message for place in places for message in traffic.before(*place)]
    sent = [message for place in places for message in traffic.after(*place)]
    crossing = sum(device_of[edge.producer] != device_of[edge.consumer] for edge in edges)
    assert len(sent) == len(set(sent)) == 2 * crossing * micro_batches
    assert set(awaited) == set(sent)
    assert len(awaited) == len(sent)
    for device in range(schedule.devices):
        for sender, order in traffic.incoming(device).items():
            to_device = [one for one in sent if (one.from_device, one.to_device) == (sender, device)]
            assert list(order) == to_device
