"""Whole certificates, of layouts that are equal and of some that are not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from drivetrain.api import certify
from drivetrain.core.errors import BadInputError
from drivetrain.layers.draws.facts import DrawFacts
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.load import resolve_recipe
from drivetrain.verify import measurer, subject
from drivetrain.verify.certificate import verify_resolved
from drivetrain.verify.cuts import Layout
from drivetrain.verify.layouts import parse_cuts
from drivetrain.verify.measure import RankPart, Starts, measure_rank
from drivetrain.verify.subject import Subject, prepare_subject
from drivetrain.verify.table import closing_line, print_certificate
from tests.run.shown_work import ShownWork
from tests.verify.certificates import MODELS, verified
from tests.verify.models import Plain


def test_accumulation_with_dropout_augmentation_and_padding() -> None:
    """The set ends inside a batch, which then holds padding."""
    certificate = verified(
        "accumulation=2;accumulation=8",
        model="mnist_cnn",
        image_size=12,
        augment=True,
        mixup=0.2,
        remainder="pad",
        l2_regularization=0.01,
        clip_norm=0.5,
        updates=6,
    )
    assert certificate.ok, closing_line(certificate)
    assert len(certificate.rows) == 4
    assert certificate.different_by_definition == ()
    assert all(row.statistics is None for row in certificate.rows)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_rates_by_block_and_frozen_norms(rank_pool: RankPool, optimizer: str) -> None:
    certificate = verified(
        "replicas=2;stages=2,accumulation=2;stages=2,accumulation=2,processes=1",
        pool=rank_pool,
        optimizer=optimizer,
        weight_decay=0.01,
        layer_decay=0.5,
        backbone_rate=0.1,
        freeze_norm=True,
        clip_norm=0.5,
    )
    assert certificate.ok, closing_line(certificate)
    assert len(certificate.rows) == 6


def test_a_users_own_model_with_plain_batch_norm(rank_pool: RankPool) -> None:
    certificate = verified(
        "replicas=2;replicas=2,accumulation=2,group=2;replicas=4;accumulation=4",
        model=f"{MODELS}:Plain",
        pool=rank_pool,
    )
    assert certificate.ok, closing_line(certificate)
    assert [layout.name for layout in certificate.different_by_definition] == ["accumulation=4"]
    assert {row.reference.micro for row in certificate.rows} == {2, 4}
    found = certificate.to_json()
    assert {entry["dtype"] for entry in found["layouts"]} == {"float32", "float64"}
    # In float32 a group may be equal at most points only, on some processors.
    points = {
        (entry["points_equal"], entry["points_tried"])
        for entry in found["layouts"]
        if "group" not in entry["layout"]
    }
    assert points == {(1, 1)}
    for control in found["negative_control"].values():
        assert (control["layout"], control["caught"]) == ("replicas=2", True)
        assert 1e-5 < control["max_relative_gradient_error"] < 1e-2


def test_a_module_made_in_python_goes_to_the_ranks_and_stays_as_it_is(rank_pool: RankPool) -> None:
    module = Plain(channels=1, num_classes=10)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    certificate = verified("replicas=2", module=module, model=f"{MODELS}:Plain", pool=rank_pool)
    assert certificate.ok, closing_line(certificate)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_the_certificate_of_own_model_and_data_in_python() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 6, 6, 3), dtype=np.uint8)
    found = certify(
        model=Plain(channels=3, num_classes=2),
        data=(images, np.arange(20) % 2),
        layouts="accumulation=2;accumulation=4",
        updates=2,
    )
    assert found["ok"]
    assert found["reference"]["notes"][0] == "samples: the first 20 of your own data"
    assert [entry["layout"] for entry in found["different_by_definition"]] == ["accumulation=4"]


def test_a_model_that_draws_for_the_micro_batch_is_compared_in_micro_batches_of_one_size(
    rank_pool: RankPool,
) -> None:
    layouts = "accumulation=2;accumulation=4;replicas=2;replicas=2,accumulation=2"
    certificate = verified(layouts, model=f"{MODELS}:Noisy", pool=rank_pool, dtypes=("float32",))
    assert certificate.ok
    assert all(row.layout.micro == row.reference.micro for row in certificate.rows)
    assert [layout.name for layout in certificate.different_by_definition] == ["accumulation=4"]
    assert "the model draws random numbers per micro-batch" in closing_line(certificate)


def test_a_norm_of_a_kind_of_its_own_is_caught_by_its_statistics(rank_pool: RankPool) -> None:
    certificate = verified("replicas=2", model=f"{MODELS}:with_own_norm", pool=rank_pool)
    assert not certificate.ok
    assert "the running statistics norm.running" in closing_line(certificate)
    assert "the ranks ended with different weights or statistics" in closing_line(certificate)


def test_a_count_of_micro_batches_is_caught(rank_pool: RankPool) -> None:
    certificate = verified("replicas=2", model=f"{MODELS}:Counting", pool=rank_pool, dtypes=("float32",))
    assert closing_line(certificate) == ("not certified: replicas=2 in float32: the buffer passes differs")
    assert certificate.rows[0].points_tried == 1


def test_a_quick_certificate_has_every_family_and_negative_controls(rank_pool: RankPool) -> None:
    certificate = verified("", model=f"{MODELS}:Plain", pool=rank_pool, dtypes=(), updates=None, quick=True)
    assert certificate.ok, closing_line(certificate)
    assert certificate.updates == 2
    assert [(row.layout.name, row.dtype) for row in certificate.rows] == [
        ("replicas=2", "float32"),
        ("accumulation=2,stages=2,schedule=1f1b,processes=1", "float32"),
        ("accumulation=2,stages=2,schedule=1f1b,recomputation=true,processes=1", "float32"),
        ("accumulation=2,stages=2,schedule=1f1b", "float32"),
        ("replicas=2,group=2", "float64"),
    ]
    assert [(control.dtype, control.is_caught) for control in certificate.controls] == [
        ("float32", True),
        ("float64", True),
    ]
    assert "in float32 or float64;" in closing_line(certificate)


def test_typed_dtypes_hold_for_every_layout_of_a_quick_certificate(rank_pool: RankPool) -> None:
    certificate = verified(
        "replicas=2,group=2", model=f"{MODELS}:Plain", pool=rank_pool, dtypes=("float32",), quick=True
    )
    assert [row.dtype for row in certificate.rows] == ["float32"]
    assert certificate.subject.batch.global_batch == 4


def test_draws_per_micro_batch_are_named_where_nothing_is_comparable(
    rank_pool: RankPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "find_draws", lambda *_, **__: DrawFacts(by_micro_batch=("rand",)))
    certificate = verified(
        "replicas=2;accumulation=4", model="mnist_cnn", image_size=12, pool=rank_pool, dtypes=("float32",)
    )
    assert certificate.ok, closing_line(certificate)
    assert [row.layout.name for row in certificate.rows] == ["replicas=2"]
    why = "not comparable: the model draws random numbers per micro-batch"
    assert closing_line(certificate).endswith(f"; 1 {why}")
    console = Console(record=True, width=300)
    print_certificate(certificate, console=console)
    (row,) = [line for line in console.export_text().splitlines() if line.startswith("accumulation=4")]
    assert "nothing: micro-batches of 2 samples" in row
    assert row.rstrip().endswith(why)


def _go_wrong(monkeypatch: pytest.MonkeyPatch, *, below_seed: int) -> None:
    """Accumulated gradients come out a thousandth too long, with some seeds."""

    def wrong(group: ReplicaGroup, subject: Subject, layout: Layout, *others: Any) -> RankPart:
        part = measure_rank(group, subject, layout, *others)
        if layout.accumulation == 1 or subject.recipe.seed >= below_seed:
            return part
        assert part.measurement is not None
        steps = tuple(
            replace(step, gradients={name: value * 1.001 for name, value in step.gradients.items()})
            for step in part.measurement.steps
        )
        return replace(part, measurement=replace(part.measurement, steps=steps))

    monkeypatch.setattr(measurer, "measure_rank", wrong)


def _other_weights(program: TrainingProgram, _update: int) -> None:
    """What a layout would do that initialises its weights by its own chance."""
    program.parameters.values.mul_(1.01)


def _no_momentum(program: TrainingProgram, _update: int) -> None:
    for state in program.mover.optimiser.states.values():
        state.zero_()


@pytest.mark.parametrize(
    ("fault", "at_update", "said"),
    [(_other_weights, 0, "the gradient of"), (_no_momentum, 1, "the optimizer state velocity")],
)
def test_a_layout_that_starts_or_goes_on_otherwise_is_caught(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[TrainingProgram, int], None], at_update: int, said: str
) -> None:
    """Before an update of a layout that follows, after the state of one process was taken over."""
    begin = Starts.begin

    def begin_otherwise(starts: Starts, program: TrainingProgram, update: int) -> None:
        begin(starts, program, update)
        if not starts.leads and update == at_update:
            with torch.no_grad():
                fault(program, update)

    monkeypatch.setattr(Starts, "begin", begin_otherwise)
    options = {"optimizer": "sgd", "optimizer_params": {"momentum": 0.9}, **MNIST, "updates": 2}
    certificate = verified("accumulation=2", dtypes=("float64",), **options)
    assert not certificate.ok
    assert any(said in failure for failure in certificate.rows[0].failures)


MNIST: dict[str, Any] = {"model": "mnist_cnn", "image_size": 12, "seed": 0, "updates": 1}


def test_a_wrong_layout_is_wrong_at_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small mistake is looked at again with other seeds, and stays one."""
    _go_wrong(monkeypatch, below_seed=100)
    certificate = verified("accumulation=2", dtypes=("float32",), **MNIST)
    assert not certificate.ok
    row = certificate.rows[0]
    assert (row.points_equal, row.points_tried) == (0, 4)
    assert row.gradients.error == pytest.approx(1e-3, rel=0.2)
    assert "equal for 0 of 4 seeds, 5 of 8 are needed" in closing_line(certificate)


def test_the_control_spoils_the_last_of_the_ranks(rank_pool: RankPool) -> None:
    """What it gets wrong goes through the sum of the ranks, and arrives as that rank's share of it."""
    options = {"dataset": "digits", "model": f"{MODELS}:Plain"}
    subject = prepare_subject(resolve_recipe(overrides=options), updates=1)
    layout = Layout(replicas=2, micro=4)
    plain, spoilt = (
        rank_pool.run(measure_rank, subject, layout, "float64", name, ranks=2)[0]
        .measurement.steps[0]
        .gradients
        for name in (None, "conv.weight")
    )
    wrong = np.linalg.norm(spoilt["conv.weight"] - plain["conv.weight"])
    assert 1e-4 < wrong / np.linalg.norm(plain["conv.weight"]) < 9.9e-4
    assert all(np.array_equal(spoilt[name], plain[name]) for name in plain if name != "conv.weight")


@pytest.mark.parametrize("layouts", ["accumulation=2", "replicas=2"])
def test_a_certificate_whose_control_is_missed_is_void(rank_pool: RankPool, layouts: str) -> None:
    certificate = verified(layouts, model=f"{MODELS}:Silent", pool=rank_pool, dtypes=("float64",), updates=1)
    assert all(row.ok for row in certificate.rows)
    assert [control.is_caught for control in certificate.controls] == [False]
    assert not certificate.ok
    missed = f"{layouts} in float64 with one gradient multiplied by 1.001 passed as equal"
    assert f"not certified: the negative control failed: {missed}" in closing_line(certificate)


def test_layouts_that_are_not_equal_at_every_point_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A jump at the first two points, as rounding makes them; float64 has no such excuse."""
    _go_wrong(monkeypatch, below_seed=2)
    certificate = verified("accumulation=2", dtypes=("float32",), **MNIST)
    assert certificate.ok
    said = closing_line(certificate)
    assert "equal seeds: accumulation=2 5 of 7; worst gradient 9.9e-04" in said
    print_certificate(certificate, console=Console(width=200))
    assert "equal: 5 of 7 seeds" in capsys.readouterr().out
    assert not verified("accumulation=2", dtypes=("float64",), **MNIST).ok


def test_a_model_for_float32_alone_can_be_verified_in_float32() -> None:
    assert verified("accumulation=2", model=f"{MODELS}:Float32Only", dtypes=("float32",)).ok
    with pytest.raises(BadInputError, match="--dtype float32 skips float64"):
        verified("accumulation=2", model=f"{MODELS}:Float32Only")


def test_the_table_says_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    certificate = verified("accumulation=4;accumulation=2", model=f"{MODELS}:Plain", dtypes=("float64",))
    print_certificate(certificate, console=Console(width=200))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == [
        "layout",
        "accumulation=2",
        "accumulation=4",
        "accumulation=2",
    ]
    assert lines[1].endswith("same  identical")
    assert lines[2].endswith("not comparable: batch norm sees a different set of samples")
    assert "negative control: one gradient x 1.001" in lines[3]
    assert lines[3].endswith("caught")
    assert lines[4].startswith("certified: 1 layout computes the same as one process for ")
    print_certificate(certificate, console=Console(width=200, force_terminal=True))
    assert "not comparable: batch norm sees a different set of samples" in capsys.readouterr().out


def test_identical_layouts_are_named_and_others_fail_where_identity_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A last bit that differs passes as equal; the layout with the whole batch has no reference then."""
    layouts = "accumulation=2,stages=2,processes=1;accumulation=4"
    required: dict[str, Any] = {**MNIST, "dtypes": ("float32",), "requires": "identical"}
    certificate = verified(layouts, **required)
    (row,) = certificate.rows
    assert (row.verdict, row.reference, certificate.ok) == (
        "identical",
        Layout(micro=4, accumulation=2),
        True,
    )
    assert "in float32; all bit for bit; 1 not comparable: no other layout" in closing_line(certificate)

    def with_last_bit(group: ReplicaGroup, subject: Subject, layout: Layout, *others: Any) -> RankPart:
        part = measure_rank(group, subject, layout, *others)
        weights = {} if part.measurement is None else part.measurement.steps[0].weights
        # The negative control has no weights.
        if layout.stages > 1 and weights:
            weights["dense.bias"][0] += np.spacing(weights["dense.bias"][0])
        return part

    monkeypatch.setattr(measurer, "measure_rank", with_last_bit)
    failed = verified(layouts, **required)
    assert (failed.rows[0].verdict, failed.rows[0].ok, failed.ok) == ("equal", True, False)
    said = closing_line(failed)
    assert "is equal but not identical: 1 of " in said
    assert said.endswith("first in update 1: the updated dense.bias")
    entry = failed.to_json()["layouts"][0]
    assert entry["bits"]["first_difference"] == {"update": 1, "tensor": "the updated dense.bias"}
    assert (entry["verdict"], failed.to_json()["requires"]) == ("equal", "identical")
    assert verified(layouts, dtypes=("float32",), **MNIST).ok


def test_bits_are_not_compared_with_other_micro_batches() -> None:
    certificate = verified("accumulation=2", dtypes=("float32",), **MNIST)
    console = Console(record=True, width=300)
    print_certificate(certificate, console=console)
    line = console.export_text().splitlines()[1]
    assert line.rstrip().endswith("other micro-batches  equal")
    assert "bit for bit" not in closing_line(certificate)


def test_what_is_verified_is_shown_and_ends() -> None:
    shown = ShownWork()
    overrides = {"dataset": "digits", "model": "mnist_cnn", "image_size": 12}
    resolved = resolve_recipe(overrides=overrides)
    cuts = parse_cuts("accumulation=2")
    verify_resolved(resolved, reporter=shown, cuts=cuts, updates=1, dtypes=("float32",))
    assert shown.names == ["verifying", "negative control in float32"]
    assert sorted(shown.ended) == sorted(shown.names)
    assert max(shown.counted["verifying"]) <= (shown.totals["verifying"] or 0)
