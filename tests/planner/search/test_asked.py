"""What the typed options ask of the search."""

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.planner.search.asked import take_auto


@pytest.mark.parametrize("text", ["", "8XB", "GB", "-8GB", "0", "0GB", "8 GB more"])
def test_a_limit_that_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="--memory-limit 8GB works"):
        take_auto({"stages": "auto"}, memory_limit=text)


def test_a_limit_alone_is_refused_where_it_has_no_use() -> None:
    assert take_auto({"seed": "1"}, memory_limit="8GB", limits_alone=True) == (None, {"seed": "1"})
    with pytest.raises(BadInputError, match="--memory-limit 8GB has no effect"):
        take_auto({"seed": "1"}, memory_limit="8GB")


def test_auto_is_taken_out_of_the_options() -> None:
    asked, others = take_auto({"stages": "auto", "seed": "1"}, memory_limit="8GB")
    assert asked is not None
    assert (asked.stages, asked.replicas, asked.devices, asked.memory_limit) == (True, False, None, 8 * 10**9)
    assert others == {"seed": "1"}


def test_an_alias_is_understood() -> None:
    asked, others = take_auto({"num_replicas": "auto"}, memory_limit=None)
    assert asked is not None
    assert asked.replicas
    assert not asked.stages
    assert others == {}


def test_devices_leave_the_replicas_open() -> None:
    asked, others = take_auto({"stages": "auto", "devices": "8"}, memory_limit=None)
    assert asked is not None
    assert (asked.replicas, asked.devices) == (True, 8)
    assert others == {}


def test_a_search_keeps_the_numbers_that_were_typed() -> None:
    asked, others = take_auto({"stages": "4"}, memory_limit=None, searches=True)
    assert asked is not None
    assert (asked.stages, asked.replicas) == (False, True)
    assert others == {"stages": "4"}


def test_a_typed_schedule_is_the_only_one_searched() -> None:
    asked, others = take_auto({"stages": "auto", "pipeline_schedule": "gpipe"}, memory_limit=None)
    assert asked is not None
    assert asked.schedule == "gpipe"
    assert others == {}


def test_without_auto_nothing_is_asked() -> None:
    assert take_auto({"stages": "4"}, memory_limit=None) == (None, {"stages": "4"})


def test_a_limit_without_a_search_is_refused() -> None:
    with pytest.raises(BadInputError, match="--memory-limit 8GB has no effect without --fit, --stages auto"):
        take_auto({}, memory_limit="8GB")


def test_what_the_search_chooses_cannot_be_fixed() -> None:
    with pytest.raises(BadInputError, match="--recomputation fixes what the search chooses"):
        take_auto({"stages": "auto", "recomputation": "true"}, memory_limit=None)


def test_devices_must_be_a_number() -> None:
    with pytest.raises(BadInputError, match="--devices 2 works"):
        take_auto({"stages": "auto", "devices": "all"}, memory_limit=None)


def test_the_search_chooses_the_splits() -> None:
    with pytest.raises(BadInputError, match="--split-by fixes what the search chooses"):
        take_auto({"stages": "auto", "split_by": "time"}, memory_limit=None)
