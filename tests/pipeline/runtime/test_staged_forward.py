"""Images through stages on ranks of their own, without training."""

import torch
from torch import Tensor

from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from tests.pipeline.rank_programs import Job, cut_options, program_of

SIZES = (3, 1, 5, 3, 3)


def _logits(group: ReplicaGroup, job: Job) -> tuple[list[Tensor], bool, list[tuple[int, ...]]]:
    """The output for batches of several sizes, whether it is the model's here, and the statistics' shapes."""
    program = program_of(group, job)
    before = {name: value.clone() for name, value in program.model.state_dict().items()}
    program.model.eval()
    generator = torch.Generator().manual_seed(0)
    found = []
    for size in SIZES:
        images = torch.rand(size, 1, 10, 10, generator=generator)
        with torch.inference_mode():
            found.append(program.forward(images.contiguous(memory_format=torch.channels_last)).clone())
    after = program.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    has_last = program.stages is None or program.stages.last in program.stages.own
    return found, has_last, [tuple(value.shape) for value in found]


def test_logits_come_out_where_the_last_stage_is(rank_pool: RankPool) -> None:
    expected, _, shapes = _logits(ALONE, Job(kind="unet_same", options={}))
    for device_of in ((0, 1, 2, 3), (0, 1, 1, 0)):
        options = cut_options("unet_same", device_of=device_of)
        parts = rank_pool.run(_logits, Job(kind="unet_same", options=options), ranks=max(device_of) + 1)
        assert [has_last for _, has_last, _ in parts].count(True) == 1
        for found, has_last, own_shapes in parts:
            assert own_shapes == shapes
            for one, other in zip(expected, found, strict=True):
                assert torch.equal(other, one if has_last else torch.zeros_like(one))
