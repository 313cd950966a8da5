import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.lazy_layers import complete_lazy_layers


def _lazy() -> nn.Sequential:
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))


def test_lazy_layers_get_their_weights_by_the_seed_and_no_statistics_move() -> None:
    models = [_lazy() for _ in range(3)]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for model, seed in zip(models, (1, 1, 2), strict=True):
        complete_lazy_layers(model, image_shape=(3, 8, 6), seed=seed)
    assert torch.equal(torch.get_rng_state(), before)
    assert type(models[0][0]) is nn.Conv2d
    assert models[0][4].weight.shape == (5, 4 * 6 * 4)
    first, same, other = (model.state_dict()["4.weight"] for model in models)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert models[0].training
    assert models[0][1].num_batches_tracked == 0


def test_images_that_do_not_fit_are_told() -> None:
    with pytest.raises(BadInputError, match="--model cannot take images of 3x2x2: "):
        complete_lazy_layers(_lazy(), image_shape=(3, 2, 2), seed=0)


class _Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.LazyLinear(3)

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)


def test_a_lazy_layer_that_never_runs_is_named() -> None:
    with pytest.raises(BadInputError, match=r"--model's unused\.weight has no size yet"):
        complete_lazy_layers(_Unused(), image_shape=(3, 4, 4), seed=0)
