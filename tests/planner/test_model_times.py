"""Times of layers for a search: in the order of the traced model, whatever the recipe's own layout is."""

from drivetrain.console.reporter import Reporter
from drivetrain.planner.devices.target import Target, find_target
from drivetrain.planner.model_times import model_times
from tests.planner.plans import ROUND, planned, resolved


def test_all_layers_have_a_time_whatever_the_layout() -> None:
    plan = planned(stages=3).outline.plan
    assert plan is not None
    names = [layer.name for layer in plan.traced.layers]
    with Reporter(quiet=True) as reporter:
        for options in ({}, {"stages": 3}, {"replicas": 2}, {"recomputation": True}):
            asked = resolved(precision="32.32", **options)
            target = find_target(asked.recipe, described=ROUND)
            found = model_times(asked, target=target, reporter=reporter)
            assert found is not None
            assert [layer.name for layer in found.layers] == names
            assert found.micro_batch_size == asked.recipe.micro_batch_size
            flops = sum(layer.flops for layer in plan.shapes.layers)
            assert abs(found.forward_s - flops * 1e-9) < 1e-12
            assert found.source == "described"


def test_a_device_that_is_elsewhere_has_none() -> None:
    elsewhere = Target(name="xpu:0", is_cpu=False, memory_bytes=None)
    with Reporter(quiet=True) as reporter:
        assert model_times(resolved(), target=elsewhere, reporter=reporter) is None
