"""The candidates, their sizes, and what typed options leave of them."""

from typing import Any

import pytest

from drivetrain.auto.rules.networks import Network, networks_for
from tests.auto.fingerprints import KINDS, case_of


def _networks(kind: str, **typed: Any) -> list[Network]:
    return networks_for(case_of(KINDS[kind], typed))


def _of(networks: list[Network], field: str) -> set[Any]:
    return {network.options.get(field) for network in networks}


@pytest.mark.parametrize("kind", KINDS)
def test_candidates_are_distinct_and_sorted_by_work(kind: str) -> None:
    networks = _networks(kind)
    assert len({str(network.options) for network in networks}) == len(networks) > 1
    assert [network.work for network in networks] == sorted((n.work for n in networks), reverse=True)


def test_large_sets_have_deeper_candidates() -> None:
    assert _of(_networks("photographs"), "model") == {"resnet18"}
    assert _of(_networks("huge"), "model") == {"resnet18", "resnet34", "resnet50"}


def test_sizes_do_not_exceed_the_images() -> None:
    assert _of(_networks("photographs"), "image_size") == {224, 192, 160, 128, 96, 64}
    assert _of(_networks("wide images"), "image_size") == {96, 64}
    assert _of(_networks("medium images"), "image_size") == {64}
    assert _of(_networks("tiny images"), "image_size") == {None}
    assert _of(_networks("tiny and not square"), "image_size") == {16}
    assert _of(_networks("tiny of many sizes"), "image_size") == {24}


def test_masks_are_trained_on_whole_images_or_tiles() -> None:
    assert _of(_networks("masks of one size"), "tile_size") == {None}
    assert _of(_networks("large masks of one size"), "tile_size") == {512, 384, 256}
    assert _of(_networks("masks"), "tile_size") == {256, 192, 128}
    assert _of(_networks("small masks"), "tile_size") == {64}


@pytest.mark.parametrize(("side", "depth"), [(64, 3), (128, 4), (256, 5), (512, 5), (24, 2)])
def test_a_u_net_is_as_deep_as_its_images_allow(side: int, depth: int) -> None:
    (network, *_) = _networks("masks", tile_size=side)
    assert network.options["model_params"] == {"norm": "batch", "depth": depth}


def test_a_typed_model_leaves_only_sizes() -> None:
    assert [n.options for n in _networks("photographs", model="my_models:create_net")] == [
        {"model": "my_models:create_net", "image_size": 224}
    ]
    assert [n.options for n in _networks("photographs", model="timm/resnet18")] == [
        {"model": "timm/resnet18"}
    ]
    assert _of(_networks("photographs", model="cifar_resnet20"), "image_size") == {64, 48, 32}
    assert _of(_networks("photographs", model="resnet50"), "image_size") == {224, 192, 160, 128, 96, 64}
    assert len(_networks("photographs", model="resnet50", image_size=40)) == 1


def test_a_typed_u_net_without_padding_gets_tiles_that_fit_it() -> None:
    assert _of(_networks("masks of one size", model="unet"), "tile_size") == {260, 196, 132}
    assert _of(_networks("odd masks of one size", model="smp/unet:resnet18"), "tile_size") == {64}
    assert _of(_networks("masks of one size", model="smp/unet:resnet18"), "tile_size") == {None}


def test_a_typed_width_leaves_models_that_have_one() -> None:
    assert _of(_networks("huge", model_width=16), "model") == {"resnet18", "resnet34"}
    assert _of(_networks("tiny grey images", model_width=16), "model") == {"cifar_resnet20", "cifar_resnet8"}
    assert all("model_width" not in network.options for network in _networks("masks", model_width=8))


@pytest.mark.parametrize(
    ("kind", "words"),
    [("masks of one size", "256x320 pixels"), ("isbi2012", "512 pixels"), ("masks", "256 pixels")],
)
def test_whole_images_are_named_with_both_sides(kind: str, words: str) -> None:
    found = networks_for(case_of(KINDS[kind]))
    assert words in {network.size_in_words for network in found}
