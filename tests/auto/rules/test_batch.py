"""Images of an update, and how replicas share them."""

from importlib import import_module
from inspect import signature
from typing import Any

import pytest
import torch
from torch import nn

from drivetrain.auto.rules.batch import BATCH_NORMED, decide_batch, decide_norm_group, decide_remainder
from drivetrain.catalogue.models import find_models
from tests.auto.fingerprints import KINDS, case_of, photographs


@pytest.mark.parametrize(
    ("images", "batch"), [(2, 8), (10, 8), (200, 16), (800, 64), (1000, 64), (2000, 128), (10**6, 128)]
)
def test_a_power_of_two_with_ten_updates_in_a_pass(images: int, batch: int) -> None:
    case = case_of(photographs(samples={"train": images, "validation": 5}))
    decide_batch(case)
    assert case.value("micro_batch_size") == case.global_batch == batch


@pytest.mark.parametrize(("images", "batch"), [(1, 2), (3, 2), (10, 5), (90, 8)])
def test_few_images_with_masks(images: int, batch: int) -> None:
    found = photographs(
        dataset="mask-folder", task="segmentation", samples={"train": images, "validation": 1}
    )
    case = case_of(found)
    decide_batch(case)
    assert case.global_batch == batch


@pytest.mark.parametrize(
    ("typed", "micro", "whole"),
    [
        ({"global_batch_size": 48}, 48, 48),
        ({"global_batch_size": 100}, 50, 100),
        ({"global_batch_size": 97}, 1, 97),
        ({"global_batch_size": 48, "replicas": 4}, 12, 48),
        ({"replicas": 2}, 32, 64),
        ({"replicas": 2, "gradient_accumulation_count": 4}, 8, 64),
        ({"gradient_accumulation_count": 4}, 16, 64),
        ({"gradient_accumulation_count": 1000}, 1, 1000),
        ({"replicas": 2, "micro_batch_size": 64}, 64, 128),
        ({"micro_batch_size": 5}, 5, 5),
    ],
)
def test_typed_sizes_stay_and_the_rest_follows(typed: dict[str, Any], micro: int, whole: int) -> None:
    case = case_of(KINDS["photographs"], typed)
    decide_batch(case)
    assert (case.value("micro_batch_size"), case.global_batch) == (micro, whole)
    assert not case.decisions.keys() & typed.keys()


def test_batch_norm_sees_all_replicas_of_networks_that_have_it() -> None:
    for typed, expected in (
        ({"replicas": 2}, 1),
        ({"replicas": 2, "model": "my_models:create_net"}, 1),
        ({}, 1),
    ):
        case = case_of(KINDS["photographs"], typed)
        if typed == {"replicas": 2}:
            case.decide("model", "resnet18", "")
            expected = 2
        decide_norm_group(case)
        assert case.value("dbn_replica_group_size") == expected


@pytest.mark.parametrize(("images", "remainder"), [(7, "pad"), (8, "trim"), (12, "pad"), (1001, "trim")])
def test_images_that_do_not_fill_an_update(images: int, remainder: str) -> None:
    case = case_of(photographs(samples={"train": images, "validation": 5}), {"micro_batch_size": 8})
    decide_remainder(case)
    assert case.value("remainder") == remainder


def test_the_networks_with_batch_norm_are_those_of_the_catalogue() -> None:
    of_families = {info.factory.partition(":")[0]: info for info in find_models(None)}
    for info in of_families.values():
        module, _, name = info.factory.partition(":")
        factory = getattr(import_module(module), name)
        needed = {
            name for name, value in signature(factory).parameters.items() if value.default is value.empty
        }
        sizes = {"channels": info.channels, "num_classes": info.num_classes, "image_size": info.image_size}
        with torch.device("meta"):
            network = factory(**{name: value for name, value in sizes.items() if name in needed})
        has_norm = any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
        # unet_same has the norm of its recipe; rules choose one with batch norm.
        assert info.name.startswith(BATCH_NORMED) == (has_norm or info.name == "unet_same"), info.name
