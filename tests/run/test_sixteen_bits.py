"""Runs with 16-bit weights: any stop ends with the same bits, any cut with the same rounding."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import drivetrain
from drivetrain.assembly import program as build_module
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.inference.export.export import export_run
from drivetrain.passes.loss_scale import DynamicLossScale
from drivetrain.ranks.pool import RankPool
from drivetrain.store.metrics_file import read_metrics
from drivetrain.store.update_history import load_history
from tests.run.rank_runs import train_rank
from tests.run.small_training import SMALL, TrainSmall, final_files, signal_after

pytestmark = pytest.mark.usefixtures("no_pictures")

HALF: dict[str, Any] = {
    "precision": "16.16",
    "half_type": "float16",
    "stochastic_rounding": True,
    "loss_scaling": "dynamic",
    "ema": 0.9,
    "num_epochs": 2,
    "learning_rate": 0.01,
    "limit_train_samples": 64,
}


@pytest.fixture
def large_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """So large that the first updates overflow."""
    monkeypatch.setattr(build_module, "DynamicLossScale", partial(DynamicLossScale, first=2.0**24))


def _newest(path: Path) -> Path:
    return max((path / "checkpoints").iterdir(), key=lambda folder: int(folder.name))


@pytest.mark.usefixtures("large_scale")
def test_a_stopped_run_ends_with_the_same_bits(tmp_path: Path, train_small: TrainSmall) -> None:
    straight = train_small(tmp_path / "straight", **HALF)
    # Inside and after the updates that are skipped.
    for update in (1, 5):
        with signal_after(update):
            assert train_small(tmp_path / "run", **HALF).status == "stopped"
    train_small(tmp_path / "run", **HALF)
    assert final_files(tmp_path / "run") == final_files(tmp_path / "straight")
    histories = [load_history(tmp_path / name / "updates.npz") for name in ("straight", "run")]
    for name, values in histories[0].items():
        assert np.array_equal(values, histories[1][name])
    assert histories[0]["skipped"][:2].tolist() == [1, 1]
    assert np.isfinite(histories[0]["loss"]).all()
    assert straight.metrics["skipped_updates"] == histories[0]["skipped"].sum()
    assert straight.metrics["loss_scale"] == histories[0]["loss_scale"][-1]
    assert straight.metrics["precision"] == "16.16 (float16)"
    logged = [
        entry for entry in read_metrics(tmp_path / "run" / "metrics.jsonl") if entry["event"] == "train"
    ]
    assert sum(entry["skipped_updates"] for entry in logged) == straight.metrics["skipped_updates"]


def test_a_checkpoint_holds_the_16_bits_and_the_commands_after_read_it(
    tmp_path: Path, train_small: TrainSmall
) -> None:
    result = train_small(tmp_path / "run", **{**HALF, "ema": None})
    newest = _newest(tmp_path / "run")
    weights, states = load_file(newest / "model.safetensors"), load_file(newest / "optimizer.safetensors")
    assert weights["conv1_conv.weight"].dtype == torch.float16
    assert {weights[name].dtype for name in weights if "running" in name} == {torch.float32}
    assert {value.dtype for name, value in states.items() if "velocity/" in name} == {torch.float16}
    assert states["loss_scaling/scale"].item() == 2.0**15
    # The model given back is one that anybody can use, with the numbers of the checkpoint.
    assert torch.equal(result.model.get_parameter("conv1_conv.weight"), weights["conv1_conv.weight"].float())
    result.model.eval()(torch.zeros(1, 1, 8, 8))
    (found,) = drivetrain.evaluate(tmp_path / "run")
    measured = result.metrics["validation"]
    assert {name: found[name] for name in ("loss", "accuracy")} == {
        name: measured[name] for name in ("loss", "accuracy")
    }
    with Reporter(quiet=True) as reporter:
        export_run(tmp_path / "run", reporter=reporter, formats=("pt2",))


@pytest.mark.parametrize("half_type", ["float16", "bfloat16"])
def test_the_cut_changes_no_bit(rank_pool: RankPool, tmp_path: Path, half_type: str) -> None:
    """Every gradient is a sum of two, and sums of two are the same in any order."""
    options = {**HALF, "half_type": half_type, "limit_train_samples": 36}
    cuts: dict[str, dict[str, int]] = {"one": {}, "replicas": {}, "stages": {"replicas": 1, "stages": 2}}
    for name, cut in cuts.items():
        ranks = 1 if name == "one" else 2
        endings = rank_pool.run(train_rank, str(tmp_path / name), {**options, **cut}, ranks=ranks)
        assert {ending[:2] for ending in endings} == {("finished", 4)}
    files = [final_files(tmp_path / name) for name in cuts]
    for other in files[1:]:
        assert [name for name in files[0] if other[name] != files[0][name]] in ([], ["manifest.json"])


def test_a_run_whose_gradient_is_never_finite_ends(
    tmp_path: Path, train_small: TrainSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DynamicLossScale, "take_out_", lambda self, gradients: None)
    monkeypatch.setattr(DynamicLossScale, "judge", lambda self, is_bad: self.skips.fill_(True))
    with pytest.raises(RunFailedError, match=r"not finite at update .. even with a loss scale of"):
        train_small(tmp_path / "run", **{**HALF, "num_epochs": 11, "log_every": 5})


def test_another_precision_does_not_continue_a_run(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", **{**HALF, "max_updates": 2})
    with pytest.raises(BadInputError, match=r"--precision is 16\.32 but the run .* was started with 16\.16"):
        train_small(
            tmp_path / "run", **{**HALF, "max_updates": 2, "precision": "16.32", "stochastic_rounding": False}
        )


def test_a_list_of_layers_holds_in_training_evaluation_and_any_cut(
    rank_pool: RankPool, tmp_path: Path
) -> None:
    lists = tmp_path / "lists.yaml"
    lists.write_text("half: [conv]\nfloat32: [conv1_conv]\n")
    options = {"precision": "16.32", "precision_list": str(lists), "max_updates": 2}
    stages = {"replicas": 1, "stages": 2}
    for name, ranks, cut in (("one", 1, {}), ("stages", 2, stages)):
        rank_pool.run(train_rank, str(tmp_path / name), {**options, **cut}, ranks=ranks)
    files = [final_files(tmp_path / name) for name in ("one", "stages")]
    assert files[0]["model.safetensors"] == files[1]["model.safetensors"]
    lists.unlink()
    (found,) = drivetrain.evaluate(tmp_path / "one")
    logged = read_metrics(tmp_path / "one" / "metrics.jsonl")
    assert found["loss"] == next(entry for entry in logged if entry["event"] == "validation")["loss"]


def test_wishes_without_an_effect_are_said(
    tmp_path: Path, train_small: TrainSmall, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = {"half": ["conv"]}
    drivetrain.train(
        **{**SMALL, "max_updates": 1, "half_partials": True, "half_type": "float16", "precision_list": lists},
        output_dir=str(tmp_path / "run"),
    )
    said = capsys.readouterr()
    assert "--half-partials True has no effect on float32 computation." in said.out + said.err
    assert "--precision-list has no effect: --precision auto is float32" in said.out + said.err
    assert "--half-type float16 has no effect: --precision auto is float32" in said.out + said.err
