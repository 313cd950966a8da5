"""Links: which one connects two ranks, how long an all-reduce takes, and how measurements become a link."""

from dataclasses import replace

import pytest

from drivetrain.planner.costs import Link
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.planner.devices.links import (
    DEFAULT_LINK,
    Links,
    all_reduce_seconds,
    find_links,
    keep_measured_link,
    machine_name,
)
from drivetrain.planner.devices.measure_links import fit_link
from drivetrain.planner.devices.target import Target, find_target
from drivetrain.recipe.schema import Recipe

NEAR, FAR = Link(bytes_per_s=100.0, latency_s=1.0), Link(bytes_per_s=10.0, latency_s=2.0)
DEVICE = DescribedDevice(
    name="d", memory_bytes=1, flops={"float32": 1.0}, bytes_per_s=1.0, devices_per_host=4
)


def test_a_ring_sends_nearly_twice_the_bytes() -> None:
    # 4 ranks: 6 steps of a quarter each.
    assert all_reduce_seconds(400, ranks=4, link=NEAR) == 6 / 4 * 400 / 100 + 6 * 1.0
    assert all_reduce_seconds(400, ranks=4, link=NEAR, buckets=3) == 6 + 18
    assert all_reduce_seconds(400, ranks=1, link=NEAR) == 0.0


def test_ranks_of_one_host_use_its_links() -> None:
    links = Links(device=NEAR, host=FAR, devices_per_host=4, source="described")
    assert (links.slowest(4), links.slowest(5)) == (NEAR, FAR)


def test_a_described_link_comes_from_the_file() -> None:
    described = Target(
        name="d",
        is_cpu=False,
        memory_bytes=1,
        described=DescribedDevice(
            name="d",
            memory_bytes=1,
            flops={},
            bytes_per_s=1.0,
            devices_per_host=4,
            links={"device": NEAR, "host": FAR},
        ),
    )
    found = find_links(described, ranks=8)
    assert (found.device, found.host, found.source) == (NEAR, FAR, "described")
    unknown = find_links(Target(name="d", is_cpu=False, memory_bytes=1, described=DEVICE), ranks=8)
    assert (unknown.host, unknown.source) == (DEFAULT_LINK, "default")


def test_a_measured_link_is_kept(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    target = find_target(Recipe(device="cpu"))
    assert find_links(target, ranks=2).source == "default"
    keep_measured_link(NEAR, kind="cpu", machine="another machine")
    assert find_links(target, ranks=2).source == "default"
    keep_measured_link(NEAR, kind="cpu", machine=machine_name("cpu"))
    found = find_links(target, ranks=2)
    assert (found.device, found.source) == (NEAR, "measured")


def test_the_fit_finds_the_link_that_made_the_times() -> None:
    sizes = (0, 100, 1000)
    link = fit_link(sizes, [NEAR.seconds(size) for size in sizes])
    assert link == NEAR
    # Where the largest message is hardly longer than the smallest, half of its time counts.
    assert fit_link((4, 100), [1.0, 1.0]) == Link(bytes_per_s=200.0, latency_s=1.0)


def test_a_link_that_the_file_leaves_out_is_the_slower_one_or_the_default() -> None:
    def found(**links: Link) -> Links:
        device = replace(DEVICE, links=links)
        return find_links(Target(name="d", is_cpu=False, memory_bytes=1, described=device), ranks=8)

    assert (found(host=FAR).device, found(host=FAR).host) == (FAR, FAR)
    assert (found(device=NEAR).device, found(device=NEAR).host) == (NEAR, DEFAULT_LINK)
