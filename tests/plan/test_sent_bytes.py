"""The bytes that a plan says cross between devices against those that the runtime counts."""

from typing import Any

import pytest

from drivetrain.pipeline.runtime.channels import LocalChannel
from drivetrain.pipeline.runtime.placed_stages import PipelinePasses
from drivetrain.program.training_program import TrainingProgram
from tests.plan.staged_runs import MODELS, assembled, planned

SCHEDULE: dict[str, Any] = {"pipeline_schedule": "1f1b", "gradient_accumulation_count": 4, "stages": 4}
MAPPINGS = {"one device each": (), "there and back": (0, 1, 1, 0)}


def _channel(program: TrainingProgram) -> LocalChannel:
    assert isinstance(program.passes, PipelinePasses)
    channel = program.passes.executor.channel
    assert isinstance(channel, LocalChannel)
    return channel


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("name", MODELS)
def test_every_stage_sends_what_the_plan_says(
    name: str, mapping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[int, int] = {}
    send = LocalChannel.send

    def note(channel: LocalChannel, message: Any, value: Any) -> None:
        sent[message.from_stage] = sent.get(message.from_stage, 0) + value.nbytes
        send(channel, message, value)

    monkeypatch.setattr(LocalChannel, "send", note)
    options = {**SCHEDULE, "device_mapping": MAPPINGS[mapping]}
    stages = planned(name, **options)["stages"]
    program = assembled(name, **options)
    for update in range(2):
        program.run_update(update)
    assert {stage["index"]: 2 * stage["sent_bytes"] for stage in stages} == {
        stage["index"]: sent.get(stage["index"], 0) for stage in stages
    }
    assert _channel(program).bytes_sent == 2 * sum(stage["sent_bytes"] for stage in stages)


def test_skips_cross_once_and_after_their_crop() -> None:
    splits = ("encoder_block_2_conv_0", "decoder_block_0_concat", "decoder_block_2_concat")
    options = {"pipeline_splits": splits, "gradient_accumulation_count": 1}
    program = assembled("narrow unet", **options)
    assert program.stages is not None
    shapes = program.stages.plan.shapes.values
    skips = [
        (edge.producer, edge.consumer, shapes[edge.value].shape[2])
        for edge in program.stages.cut.edges
        if edge.value.startswith("central_crop")
    ]
    # From the 20 pixels of the output down: what each level's skip is cropped to.
    assert sorted(skips) == [(0, 3, 16), (0, 3, 24), (1, 2, 10), (1, 2, 12)]
    program.run_update(0)
    assert _channel(program).bytes_sent == sum(
        stage["sent_bytes"] for stage in planned("narrow unet", **options)["stages"]
    )


def test_the_plan_of_half_precision_counts_half_the_bytes() -> None:
    full, half = (planned("narrow unet", **SCHEDULE, precision=bits) for bits in ("32.32", "16.32"))
    assert [stage["sent_bytes"] for stage in full["stages"]] == [
        2 * stage["sent_bytes"] for stage in half["stages"]
    ]
