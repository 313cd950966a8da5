"""What replicas waited for, from hand-made times."""

import pytest

from drivetrain.run.scaling import ReplicaTimes, scaling_of


def _times(*waits: float, data: float = 0.0) -> list[ReplicaTimes]:
    return [ReplicaTimes(execution_s=10.0, data_s=data, sum_s=wait) for wait in waits]


def test_the_least_wait_is_the_sum_and_the_rest_is_for_stragglers() -> None:
    scaling = scaling_of(_times(1.0, 3.0), images_per_second=100.0)
    assert scaling.gradient_sum == pytest.approx(0.1)
    assert scaling.stragglers == pytest.approx(0.1)
    assert scaling.efficiency == pytest.approx(0.8)
    assert scaling.to_json()["images_per_second_per_replica"] == 50.0


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        (_times(5.0, 5.0), "gradient sums"),
        (_times(0.0, 8.0), "stragglers"),
        (_times(0.1, 0.1, data=5.0), "data"),
    ],
)
def test_poor_scaling_names_its_reason(times: list[ReplicaTimes], reason: str) -> None:
    scaling = scaling_of(times, images_per_second=10.0)
    assert scaling.main_loss == reason
    assert f"mostly {reason}" in scaling.sentence()


def test_good_scaling_gives_no_advice() -> None:
    assert "mostly" not in scaling_of(_times(0.1, 0.1), images_per_second=10.0).sentence()
