"""How many stages, devices and ranks a recipe asks for; nothing here needs torch."""

from drivetrain.recipe.schema import Recipe

__all__ = ["device_of_stage", "devices_per_replica", "rank_count", "stage_count"]


def stage_count(recipe: Recipe) -> int:
    """The parts that the model is cut into."""
    return recipe.stages or len(recipe.pipeline_splits) + 1


def device_of_stage(recipe: Recipe) -> tuple[int, ...]:
    """The device, within a replica, of each stage."""
    return recipe.device_mapping or tuple(range(stage_count(recipe)))


def devices_per_replica(recipe: Recipe) -> int:
    """The devices that hold one copy of the model."""
    return max(device_of_stage(recipe)) + 1


def rank_count(recipe: Recipe) -> int:
    """The processes of a training."""
    return recipe.replicas * devices_per_replica(recipe)
