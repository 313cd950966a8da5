"""LeNet from its layers to a file that runs elsewhere."""

from pathlib import Path

import pytest
import torch
from torch import nn

from drivetrain.console.reporter import Reporter
from drivetrain.inference.export.export import export_run
from drivetrain.models.create import create_model
from drivetrain.verify.table import closing_line
from tests.run.small_training import train_small_run
from tests.verify.certificates import verified


@pytest.mark.parametrize(("image_size", "features"), [(32, 1024), (31, 784), (4, 16)])
def test_the_dense_layers_fit_the_image(image_size: int, features: int) -> None:
    dense = create_model("lenet", image_size=image_size).get_submodule("dense1")
    assert isinstance(dense, nn.Linear)
    assert (dense.in_features, dense.out_features) == (features, 120)


def test_layouts_compute_what_one_process_computes() -> None:
    layouts = "accumulation=2;accumulation=2,stages=2,processes=1"
    certificate = verified(layouts, model="lenet", image_size=8, updates=2)
    assert certificate.ok, closing_line(certificate)


@pytest.mark.usefixtures("no_pictures")
def test_a_trained_network_is_exported(tmp_path: Path) -> None:
    brief = {"num_epochs": 1, "max_updates": 2, "limit_train_samples": 32}
    train_small_run(tmp_path / "run", **brief, model="lenet", image_size=8)
    export_run(tmp_path / "run", reporter=Reporter(quiet=True), output=tmp_path / "out", formats=("pt2",))
    exported = torch.export.load(tmp_path / "out" / "model.pt2").module()
    assert exported(torch.zeros(3, 8, 8, 1, dtype=torch.uint8)).shape == (3, 10)
