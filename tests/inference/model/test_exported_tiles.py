"""The graph for export does what the loop over tiles does, whatever the size."""

import pytest
import torch
from torch import nn

from drivetrain.inference.model.exported_tiles import GraphScaled, GraphTiles
from drivetrain.inference.model.tiles import DEFAULT_OVERLAP, ResizedForward, ScaledForward, TiledForward
from drivetrain.inference.model.whole_images import _always

SIZES = [(16, 24), (10, 7), (33, 50), (64, 100), (1, 1), (17, 24), (100, 31)]
TILE = (16, 24)


def _net(margin: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 2 * margin + 1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1)).eval()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("margin", "border"), [(0, "mirror"), (2, "mirror"), (2, "zero")])
@torch.no_grad()
def test_tiles(size: tuple[int, int], margin: int, border: str) -> None:
    net = _net(margin)
    loop = TiledForward(net, tile=TILE, margin=margin, batch=4, border=border)  # type: ignore[arg-type]
    graph = GraphTiles(
        net,
        tile=TILE,
        margin=margin,
        overlap=DEFAULT_OVERLAP,
        has_zeros=_always if border == "zero" else None,
    )
    images = torch.rand(2, 3, *size)
    torch.testing.assert_close(graph(images), loop(images), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@torch.no_grad()
def test_scaled_by_the_trainings_factors(size: tuple[int, int]) -> None:
    net, images = _net(0), torch.rand(2, 3, *size)
    tiles = TiledForward(net, tile=16, margin=0, batch=4)
    loop = ScaledForward(tiles, factors=(16 / 50, 16 / 41))
    graph = GraphScaled(
        GraphTiles(net, tile=(16, 16), margin=0, overlap=DEFAULT_OVERLAP), side=16, of=(50, 41)
    )
    torch.testing.assert_close(graph(images), loop(images), rtol=0, atol=1e-6)


@torch.no_grad()
def test_scaled_whole_with_zeros_around() -> None:
    net, images = _net(2), torch.rand(2, 3, 33, 50)
    tiles = GraphTiles(net, tile=(16, 16), margin=2, overlap=DEFAULT_OVERLAP, has_zeros=_always)
    graph = GraphScaled(tiles, side=16)
    torch.testing.assert_close(
        graph(images), ResizedForward(net, size=16, margin=2)(images), rtol=0, atol=1e-6
    )
