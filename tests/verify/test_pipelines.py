"""Certificates of models in stages: equal ones, and pipelines with something broken in them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from torch import Tensor

from drivetrain.core.errors import BadInputError
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.ranks.pool import RankPool
from drivetrain.recipe.load import resolve_recipe
from drivetrain.verify.certificate import Certificate
from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import measure_rank
from drivetrain.verify.measurer import Measurer
from drivetrain.verify.subject import prepare_subject
from drivetrain.verify.table import closing_line, print_certificate
from tests.verify.certificates import MODELS, UNET, verified

PLAYED = (
    "accumulation=4,stages=2,schedule=zero-bubble,processes=1;"
    "accumulation=4,stages=4,split_by=parameters,schedule=1f1b,"
    "mapping=0 1 1 0,recomputation=true,processes=1"
)
RECOMPUTED = "accumulation=4,stages=2,recomputation=true,processes=1"


def _layouts(certificate: Certificate) -> list[str]:
    return [row.layout.name for row in certificate.rows]


@pytest.mark.parametrize("options", [{"model": "cifar_resnet8"}, UNET], ids=["classifier", "segmentation"])
def test_stages_in_one_process_compute_what_the_whole_model_computes(options: dict[str, Any]) -> None:
    """To the bit: they add the same numbers up in the same order."""
    certificate = verified(PLAYED, updates=2, **options)
    assert certificate.ok, closing_line(certificate)
    assert _layouts(certificate) == PLAYED.split(";") * 2
    assert {row.gradients.error for row in certificate.rows} == {0.0}
    assert {row.statistics and row.statistics.error for row in certificate.rows} == {0.0}


@pytest.mark.parametrize("options", [{"model": "cifar_resnet8"}, UNET], ids=["classifier", "segmentation"])
def test_stages_on_ranks_compute_what_one_process_computes(
    rank_pool: RankPool, options: dict[str, Any]
) -> None:
    layouts = "accumulation=4,stages=2;replicas=2,accumulation=2,stages=2,split_by=parameters,schedule=gpipe"
    certificate = verified(layouts, pool=rank_pool, updates=2, **options)
    assert certificate.ok, closing_line(certificate)
    assert {control.layout.replicas for control in certificate.controls} == {2}
    found = certificate.to_json()["layouts"]
    assert [(one["schedule"], one["processes"]) for one in found[:2]] == [
        ("1f1b", 2),
        ("gpipe", 4),
    ]


def test_stages_of_replicas_whose_batch_norm_is_shared(rank_pool: RankPool) -> None:
    certificate = verified(
        "replicas=2,accumulation=2,group=2,stages=2,recomputation=0", pool=rank_pool, model=f"{MODELS}:Plain"
    )
    assert certificate.ok, closing_line(certificate)
    assert certificate.to_json()["layouts"][0]["recomputation"] == [0]


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
@pytest.mark.parametrize("name", ["conv.weight", "line.weight"])
def test_the_control_spoils_the_stage_of_the_last_replica(
    rank_pool: RankPool, schedule: str, name: str
) -> None:
    """Whichever rank has the parameter, also where gradients of weights are put off."""
    subject = prepare_subject(
        resolve_recipe(overrides={"dataset": "digits", "model": f"{MODELS}:Plain"}), updates=1
    )
    layout = Layout(replicas=2, accumulation=2, micro=2, stages=2, schedule=schedule)
    plain, spoilt = (
        rank_pool.run(measure_rank, subject, layout, "float64", spoilt, ranks=4)[0]
        .measurement.steps[0]
        .gradients
        for spoilt in (None, name)
    )
    wrong = np.linalg.norm(spoilt[name] - plain[name])
    assert 1e-4 < wrong / np.linalg.norm(plain[name]) < 9.9e-4
    assert all(np.array_equal(spoilt[other], plain[other]) for other in plain if other != name)


def test_only_ranks_of_the_same_stages_have_to_end_alike(rank_pool: RankPool) -> None:
    """A norm that moves its statistics by itself ends apart on two replicas, whose ranks tell."""
    certificate = verified(
        "replicas=2,stages=2", pool=rank_pool, model=f"{MODELS}:with_own_norm", dtypes=("float32",)
    )
    assert not certificate.ok
    assert "the ranks ended with different weights or statistics" in closing_line(certificate)


def test_a_pipeline_that_loses_the_gradient_of_a_skip_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = StageRunner.backward

    def forgetful(
        self: StageRunner, micro_batch: int, gradients: Mapping[str, Sequence[Tensor]]
    ) -> dict[str, Tensor]:
        skips = list(gradients)[:-1]
        return whole(self, micro_batch, {key: gradients[key] for key in gradients if key not in skips})

    monkeypatch.setattr(StageRunner, "backward", forgetful)
    certificate = verified("accumulation=4,stages=2,split_by=parameters,processes=1", updates=1, **UNET)
    assert not certificate.ok
    assert all(row.gradients.error > 1e-3 for row in certificate.rows)
    assert certificate.controls == ()


def test_a_pipeline_that_counts_recomputed_batch_norms_twice_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = BatchNormOwner.recomputing

    @contextmanager
    def reporting(self: BatchNormOwner, key: tuple[int, int]) -> Iterator[None]:
        if key[1] == 0:
            yield
            return
        with whole(self, key):
            yield

    assert verified(RECOMPUTED, updates=1, dtypes=("float64",)).ok
    monkeypatch.setattr(BatchNormOwner, "recomputing", reporting)
    certificate = verified(RECOMPUTED, updates=1, dtypes=("float64",))
    assert not certificate.ok
    assert "the running statistics " in closing_line(certificate)


def _usual(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Certificate:
    """The usual layouts, of which those that need ranks are not measured."""
    measured = Measurer.measured

    def here(self: Measurer, layout: Layout, *others: Any, **more: Any) -> Any:
        alone = layout.in_one_process() if layout.ranks > 1 else layout
        return measured(self, alone, *others, **more)

    monkeypatch.setattr(Measurer, "measured", here)
    monkeypatch.setattr("drivetrain.verify.certificate.run_control", lambda *_: None)
    return verified("", updates=1, dtypes=("float32",), **options)


def test_a_model_that_cannot_be_cut_is_certified_without_stages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = _usual(monkeypatch, model=f"{MODELS}:Branching")
    assert certificate.ok
    assert not any(row.layout.is_staged for row in certificate.rows)
    refused = certificate.to_json()["not_possible"]
    assert len(refused) == 9
    assert all("branches on the values or sizes of tensors" in one["reason"] for one in refused)
    print_certificate(certificate, console=Console(width=200))
    shown = capsys.readouterr().out
    assert shown.count("not possible") == 10
    with pytest.raises(BadInputError, match="branches on the values or sizes of tensors"):
        verified("", stages=2, model=f"{MODELS}:Branching")


def test_a_marked_model_is_cut_as_its_marks_say(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = _usual(monkeypatch, model=f"{MODELS}:Marked", global_batch_size=12)
    assert certificate.ok, closing_line(certificate)
    assert {row.layout.stages for row in certificate.rows} == {1, 3}
    assert certificate.not_possible == ()


def test_what_was_typed_is_verified_as_it_stands(rank_pool: RankPool) -> None:
    certificate = verified(
        "",
        model=f"{MODELS}:Plain",
        pool=rank_pool,
        updates=1,
        dtypes=("float32",),
        pipeline_splits=["line"],
        pipeline_schedule="gpipe",
        stage_options=["{stage: 0, recomputation: true}"],
    )
    assert certificate.ok, closing_line(certificate)
    own = certificate.rows[0].layout
    assert own.name == "accumulation=2,splits=line,schedule=gpipe,recomputation=0"
    assert own.ranks == 2
