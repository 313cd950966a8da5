"""From a recipe to what prepares its samples for model and loss."""

from drivetrain.catalogue.models import output_margin_of
from drivetrain.data.dense_preprocess import DensePreprocess
from drivetrain.data.preprocess import Preparation, Preprocess
from drivetrain.data.source import DataSpec
from drivetrain.recipe.schema import Recipe


def build_preparation(recipe: Recipe, spec: DataSpec) -> Preparation:
    """What a recipe's samples go through, in training and in everything after it."""
    if spec.task == "segmentation":
        return DensePreprocess(spec, image_size=recipe.image_size, margin=output_margin_of(recipe.model))
    return Preprocess(spec, recipe.image_size)
