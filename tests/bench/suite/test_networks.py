"""The networks of a suite and their short names."""

import pytest

from drivetrain.bench.suite.networks import DEFAULT_NETWORKS, check_networks, short_name
from drivetrain.core.errors import BadInputError


def test_short_names_are_those_of_the_published_figure_and_differ() -> None:
    assert short_name("efficientnet_b1") == "eff1"
    assert short_name("timm/resnet18") == "timm/resnet18"
    assert len({short_name(name) for name in DEFAULT_NETWORKS}) == len(DEFAULT_NETWORKS)


def test_the_networks_of_the_suite_are_there() -> None:
    ours = tuple(name for name in DEFAULT_NETWORKS if "/" not in name)
    check_networks(ours)
    # The other one is of Keras, which need not be installed.
    assert len(ours) == len(DEFAULT_NETWORKS) - 1


def test_a_network_that_does_not_exist_is_refused() -> None:
    check_networks(("resnet18", "my_models:create"))
    with pytest.raises(BadInputError, match="resnet19"):
        check_networks(("resnet18", "resnet19"))
