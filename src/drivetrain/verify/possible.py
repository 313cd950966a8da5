"""Checks whether a model can be split into the stages of a layout, before anything is measured."""

from functools import cached_property

from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.data.preprocess import build_preparation
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.pipeline.cutting.marks import marked_stages
from drivetrain.pipeline.cutting.stage_plan import plan_stages
from drivetrain.verify.cuts import Layout
from drivetrain.verify.subject import Subject

__all__ = ["StageProbe"]


class StageProbe:
    """Tries to split a subject's model; each way to split it is tried once."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._refusals: dict[tuple[int, tuple[str, ...], str], BadInputError | None] = {}

    @cached_property
    def _model(self) -> nn.Module:
        subject = self._subject
        return rebuild_model(subject.recipe, subject.data.spec) if subject.model is None else subject.model

    @property
    def marked_stages(self) -> int:
        """The number of stages that the modules are marked for; 0 without marks."""
        return marked_stages(self._model)

    def refusal(self, layout: Layout) -> BadInputError | None:
        """Why the model cannot be split for a layout; None if it can, or if the layout does not split it."""
        if not layout.is_staged:
            return None
        key = (layout.stages, layout.splits, layout.split_by)
        if key not in self._refusals:
            self._refusals[key] = self._tried(layout)
        return self._refusals[key]

    def _tried(self, layout: Layout) -> BadInputError | None:
        recipe = self._subject.recipe.model_copy(update=layout.recipe_changes())
        preparation = build_preparation(recipe, self._subject.data.spec)
        try:
            plan = plan_stages(
                recipe,
                self._model,
                image_shape=(preparation.channels, preparation.height, preparation.width),
                micro=layout.micro,
                accumulation=layout.accumulation,
            )
            assert plan is not None
            plan.cut()
        except BadInputError as error:
            return error
        return None
