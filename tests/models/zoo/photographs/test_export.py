"""A trained network of this folder is exported, and the file computes what the run computes."""

from pathlib import Path

import torch

from drivetrain.console.reporter import Reporter
from drivetrain.inference.export.export import export_run
from tests.run.small_training import train_small_run, train_to_share

# Each follows a convolution, so an export folds them all.
NORMS = 34


def test_what_was_trained_is_exported(tmp_path: Path) -> None:
    run = train_to_share(
        train_small_run,
        tmp_path / "run",
        model="mobilenet_v3_small",
        image_size=32,
        max_updates=2,
        learning_rate=0.001,
        limit_train_samples=32,
        limit_validation_samples=8,
    )
    result = export_run(
        run.directory, reporter=Reporter(quiet=True), output=tmp_path / "out", formats=("pt2",)
    )
    assert result.differences["model.pt2"] < 1e-4
    assert result.folded == NORMS
    exported = torch.export.load(tmp_path / "out" / "model.pt2").module()
    probabilities = exported(torch.randint(0, 256, (3, 8, 8, 1), dtype=torch.uint8))
    assert probabilities.shape == (3, 10)
    assert torch.allclose(probabilities.sum(1), torch.ones(3))
