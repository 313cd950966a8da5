import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.models.moving_buffers import moving_buffers


class _FunctionalNorm(nn.Module):
    mean: Tensor
    variance: Tensor
    calls: Tensor
    still: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3), persistent=False)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("still", torch.ones(3))

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return functional.batch_norm(images, self.mean, self.variance, training=self.training) * self.still[0]


def test_buffers_that_a_pass_changes_are_told_from_those_that_stand_still() -> None:
    model = nn.Sequential(_FunctionalNorm(), nn.BatchNorm2d(3)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = moving_buffers(model, image_shape=(3, 8, 8))
    assert found == {"0.mean": True, "0.variance": True, "0.calls": False}
    assert not model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_model_of_torchs_own_layers_has_none() -> None:
    assert moving_buffers(nn.Sequential(nn.BatchNorm2d(3)), image_shape=(3, 8, 8)) == {}


def test_a_model_that_cannot_run_has_none() -> None:
    model = nn.Sequential(_FunctionalNorm(), nn.Linear(1, 1))
    assert moving_buffers(model, image_shape=(3, 8, 8)) == {}
