"""Whole certificates, of layouts that are equal and of some that are not."""

from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from drivetrain.api import certify
from drivetrain.cluster.pool import RankPool
from drivetrain.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.reporter import Reporter
from drivetrain.verify.certificate import Certificate, verify_resolved
from drivetrain.verify.layouts import parse_cuts
from drivetrain.verify.measure import DtypeName
from drivetrain.verify.table import closing_line, print_certificate

from .models import Plain

BOTH: tuple[DtypeName, ...] = ("float32", "float64")
MODELS = f"{__package__}.models"


def _verified(
    layouts: str,
    *,
    pool: RankPool | None = None,
    dtypes: tuple[DtypeName, ...] = BOTH,
    updates: int = 3,
    module: nn.Module | None = None,
    **options: Any,
) -> Certificate:
    resolved = resolve_recipe(overrides={"dataset": "digits", **options})
    with Reporter(quiet=True) as reporter:
        return verify_resolved(
            resolved,
            reporter=reporter,
            cuts=parse_cuts(layouts),
            updates=updates,
            dtypes=dtypes,
            model=module,
            pool=pool,
        )


def test_accumulation_with_dropout_augmentation_and_padding() -> None:
    """The set ends inside a batch, which then holds padding."""
    certificate = _verified(
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
    assert all(row.difference.statistics is None for row in certificate.rows)


def test_a_users_own_model_with_plain_batch_norm(rank_pool: RankPool) -> None:
    certificate = _verified(
        "replicas=2;replicas=2,accumulation=2,group=2;replicas=4;accumulation=4",
        model=f"{MODELS}:Plain",
        pool=rank_pool,
    )
    assert certificate.ok, closing_line(certificate)
    assert [layout.name for layout in certificate.different_by_definition] == ["accumulation=4"]
    assert {row.reference.micro for row in certificate.rows} == {2, 4}
    found = certificate.to_json()
    assert {entry["dtype"] for entry in found["layouts"]} == {"float32", "float64"}
    assert found["negative_control"] == {"float32": "caught", "float64": "caught"}


def test_a_module_made_in_python_goes_to_the_ranks_and_stays_as_it_is(rank_pool: RankPool) -> None:
    module = Plain(channels=1, num_classes=10)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    certificate = _verified("replicas=2", module=module, model=f"{MODELS}:Plain", pool=rank_pool)
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
    assert found["reference"]["notes"][0] == "samples: the first of your own, 20 of them"
    assert [entry["layout"] for entry in found["different_by_definition"]] == ["accumulation=4"]


@pytest.mark.parametrize("layouts", ["accumulation=2", "replicas=2"])
def test_a_model_that_draws_for_the_micro_batch_is_caught(rank_pool: RankPool, layouts: str) -> None:
    certificate = _verified(layouts, model=f"{MODELS}:Noisy", pool=rank_pool, dtypes=("float32",))
    assert not certificate.ok
    assert certificate.controls == {"float32": True}
    row = certificate.rows[0]
    assert row.difference.gradients.name == "line.weight"
    said = closing_line(certificate)
    assert said.startswith(f"not certified: {layouts} in float32: the gradient of line.weight differs by ")
    assert said.endswith(
        "the model draws from torch's own generator, whose numbers belong to the micro-batch"
    )


def test_a_norm_of_a_kind_of_its_own_is_caught_by_its_statistics(rank_pool: RankPool) -> None:
    certificate = _verified("replicas=2", model=f"{MODELS}:with_own_norm", pool=rank_pool)
    assert not certificate.ok
    assert "the statistics norm.running" in closing_line(certificate)
    assert "the ranks ended with different weights or statistics" in closing_line(certificate)


def test_a_wrong_layout_is_wrong_at_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small mistake is looked at again with other seeds, and stays one."""
    from drivetrain.program.training import TrainingProgram

    def finish_wrongly(self: TrainingProgram) -> None:
        if self.accumulation > 1:
            self.parameters.gradients.mul_(1.001)

    monkeypatch.setattr(TrainingProgram, "_finish_gradient", finish_wrongly)
    certificate = _verified(
        "accumulation=2", model="mnist_cnn", image_size=12, dtypes=("float32",), updates=1
    )
    assert not certificate.ok
    assert certificate.rows[0].points > 1
    assert certificate.rows[0].difference.gradients.error == pytest.approx(1e-3, rel=0.2)


def test_a_model_for_float32_alone_can_be_verified_in_float32() -> None:
    assert _verified("accumulation=2", model=f"{MODELS}:Float32Only", dtypes=("float32",)).ok
    with pytest.raises(BadInputError, match="--dtype float32 does without"):
        _verified("accumulation=2", model=f"{MODELS}:Float32Only")


def test_the_table_says_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    certificate = _verified("accumulation=4;accumulation=2", model=f"{MODELS}:Plain", dtypes=("float64",))
    print_certificate(certificate, console=Console(width=200))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == [
        "layout",
        "accumulation=2",
        "accumulation=4",
        "negative control",
    ]
    assert lines[1].endswith("equal")
    assert lines[2].endswith("different by definition")
    assert lines[3].endswith("caught")
    assert lines[4].startswith("certified: 1 layout computes what one process computes of ")
    print_certificate(certificate, console=Console(width=200, force_terminal=True))
    assert "different by definition" in capsys.readouterr().out
