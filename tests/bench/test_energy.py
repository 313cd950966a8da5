"""The energy of a device: readings, and what counts as none."""

from pathlib import Path

import pytest

from drivetrain.bench.energy import energy_counter, joules_between
from drivetrain.bench.result import joules_per_image
from drivetrain.devices.device import choose_device


def _counter(folder: Path, name: str, content: str, *, of: str = "package-0\n") -> None:
    (folder / name).mkdir()
    (folder / name / "name").write_text(of)
    (folder / name / "energy_uj").write_text(content)


def test_processors_are_added_up_without_their_parts(tmp_path: Path) -> None:
    read = energy_counter(choose_device("cpu"), powercap=tmp_path)
    assert read() is None
    _counter(tmp_path, "intel-rapl:0", "2000000\n")
    _counter(tmp_path, "intel-rapl:0:0", "1000000\n", of="core\n")
    _counter(tmp_path, "intel-rapl:2", "9000000\n", of="psys\n")
    _counter(tmp_path, "intel-rapl:1", "500000\n")
    assert read() == pytest.approx(2.5)
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("?")
    assert read() is None


@pytest.mark.parametrize(
    ("before", "after", "found"), [(1.0, 3.5, 2.5), (None, 1.0, None), (1.0, None, None), (3.0, 1.0, None)]
)
def test_a_counter_that_began_again_tells_nothing(
    before: float | None, after: float | None, found: float | None
) -> None:
    assert joules_between(before, after) == found


def test_joules_of_an_image_are_the_median_of_the_repeats() -> None:
    repeats = [{"joules": joules, "images": 10} for joules in (20.0, 40.0, 30.0)]
    assert joules_per_image([*repeats, {}]) == {"joules_per_image": 3.0}
    assert joules_per_image([{}]) == {}
