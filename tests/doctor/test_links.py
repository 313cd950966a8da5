"""`doctor --links`: two ranks measure their link, and `plan` finds it."""

from pathlib import Path

import pytest

from drivetrain.doctor.links import check_links
from drivetrain.planner.costs import Link
from drivetrain.planner.devices import measure_links
from drivetrain.planner.devices.links import find_links
from drivetrain.planner.devices.target import find_target
from drivetrain.recipe.schema import Recipe


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_two_ranks_measure_their_link() -> None:
    found = check_links()
    assert {finding.status for finding in found} == {"ok"}
    link = find_links(find_target(Recipe(device="cpu")), ranks=2)
    assert link.source == "measured"
    assert link.device.latency_s > 0
    assert link.device.bytes_per_s > 0


def test_what_keeps_them_apart_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: str) -> Link:
        raise OSError("too many\nprocesses")

    monkeypatch.setattr(measure_links, "measure_link", failing)
    found = check_links()
    assert all(finding.status == "note" for finding in found)
    assert "(too many processes)" in found[0].sentence
