"""The cheapest change that makes a recipe fit its device, with its price in time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from drivetrain.core.errors import BadInputError
from drivetrain.plan.training_plan import PlannedRun, look_into
from drivetrain.planner.costs import CostSource
from drivetrain.recipe.checks.all_rules import check_recipe
from drivetrain.recipe.layout import batch_of, stage_count
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe

__all__ = ["Advice", "Change", "Figures", "candidates", "cheapest_change"]

# Smaller micro-batches halve until one sample is left; more stages double up to this many.
_MOST_STAGES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a recipe: its options as typed, the fields that it sets, and what it changes besides.

    `warning` says how the results differ, `needs` which devices it takes.
    """

    options: str
    fields: dict[str, object]
    warning: str | None = None
    needs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What decides about a change; seconds are None if they are not known."""

    peak_bytes: int
    seconds_per_update: float | None
    source: CostSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The cheapest change that fits; if none does, the one that needs least memory."""

    change: Change
    fits: bool
    peak_bytes: int
    seconds_per_update: float | None
    price: float | None
    """How much longer an update takes, as a share: 0.3 is 30 % longer; None if it is not known."""
    others: tuple["Advice", ...] = ()
    """The other changes that fit, by their price."""

    def to_json(self) -> dict[str, object]:
        """For `advice` of a plan."""
        return {
            "options": self.change.options,
            "fits": self.fits,
            "peak_bytes": self.peak_bytes,
            "seconds_per_update": self.seconds_per_update,
            "price": self.price,
            **({} if self.change.warning is None else {"warning": self.change.warning}),
            **({} if self.change.needs is None else {"needs": self.change.needs}),
            **({"others": [other.to_json() for other in self.others]} if self.others else {}),
        }

    @property
    def sentence(self) -> str:
        """The advice for people, with the next change that keeps the results if this one does not."""
        if not self.fits:
            return (
                f"no single change makes it fit; the smallest is {self.change.options}, which needs "
                f"{_size(self.peak_bytes)}"
            )
        first = f"{self.change.options} makes it fit: {self._costs}"
        if self.change.warning is None:
            return first
        same = next((other for other in self.others if other.change.warning is None), None)
        also = "" if same is None else f"; {same.change.options} keeps the results: {same._costs}"
        return f"{first}; {self.change.warning}{also}"

    @property
    def _costs(self) -> str:
        also = "" if self.change.needs is None else f" on each of {self.change.needs}"
        needs = f"it needs {_size(self.peak_bytes)}{also}"
        if self.price is None:
            return needs
        share = f"{abs(100 * self.price):.0f} % {'longer' if self.price >= 0 else 'less'}"
        return f"{needs}, and an update takes about {share}"


def _size(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def candidates(
    recipe: Recipe, *, normalises: bool, on_cpu: bool, most_stages: int
) -> Iterator[Sequence[Change]]:
    """The changes to try, as lists whose later changes save more memory and cost more time.

    `normalises`: the model has batch norms, which see each micro-batch by itself.
    """
    yield tuple(_smaller_batches(recipe, normalises=normalises))
    if not recipe.recomputation:
        yield (Change(options="--recomputation True", fields={"recomputation": True}),)
    if not recipe.optimizer_state_offloading and not on_cpu:
        fields: dict[str, object] = {"optimizer_state_offloading": True}
        yield (Change(options="--optimizer-state-offloading True", fields=fields),)
    if recipe.precision == "32.32":
        yield (
            Change(
                options="--precision 16.32",
                fields={"precision": "16.32"},
                warning="it computes in 16 bits, so the results are not the same",
            ),
        )
    yield tuple(_more_stages(recipe, most=most_stages))


def _smaller_batches(recipe: Recipe, *, normalises: bool) -> Iterator[Change]:
    """Half the micro-batch at the same global batch, and so on."""
    batch = batch_of(recipe)
    micro, factor = batch.micro, 1
    while micro % 2 == 0:
        micro, factor = micro // 2, 2 * factor
        group = recipe.dbn_replica_group_size
        warning = None
        if normalises:
            warning = (
                f"batch norm then normalises {micro * group} samples together instead of "
                f"{batch.micro * group}, so the results are not the same"
            )
        fields: dict[str, object] = {"micro_batch_size": micro}
        options = f"--micro-batch-size {micro}"
        # The option that the recipe uses already, as the two exclude each other.
        if recipe.global_batch_size is None:
            fields["gradient_accumulation_count"] = factor * batch.accumulation
            options += f" --gradient-accumulation-count {factor * batch.accumulation}"
        yield Change(options=options, fields=fields, warning=warning)


def _more_stages(recipe: Recipe, *, most: int) -> Iterator[Change]:
    if recipe.pipeline_splits or recipe.device_mapping or recipe.stage_options:
        return
    stages = 2 * stage_count(recipe)
    while stages <= min(most, _MOST_STAGES):
        yield Change(
            options=f"--stages {stages}",
            fields={"stages": stages},
            needs=f"{stages * recipe.replicas} devices",
        )
        stages *= 2


def cheapest_change(
    resolved: ResolvedRecipe,
    choices: Iterable[Sequence[Change]],
    *,
    available_bytes: int,
    usual: Figures,
    figures_of: Callable[[PlannedRun], Figures | None],
) -> Advice | None:
    """The change that fits and costs least time; None if no change is possible at all.

    Of each list the first change that fits counts. If no times are known, a change that keeps the results
    comes first.
    """
    tried: list[Advice] = []
    for changes in choices:
        for change in changes:
            figures = _figures(resolved, change, figures_of)
            if figures is not None:
                tried.append(_advice(change, figures, usual=usual, available_bytes=available_bytes))
                if tried[-1].fits:
                    break
    fitting = sorted((advice for advice in tried if advice.fits), key=_cost)
    if not fitting:
        return min(tried, key=lambda advice: advice.peak_bytes, default=None)
    return replace(fitting[0], others=tuple(fitting[1:]))


def _cost(advice: Advice) -> tuple[bool, float]:
    return advice.change.warning is not None and advice.price is None, advice.price or 0.0


def _figures(
    resolved: ResolvedRecipe, change: Change, figures_of: Callable[[PlannedRun], Figures | None]
) -> Figures | None:
    changed = replace(resolved, recipe=resolved.recipe.model_copy(update=change.fields), warnings=())
    try:
        check_recipe(changed.recipe, changed.origins)
        return figures_of(look_into(changed))
    except BadInputError:
        # The model cannot be split there, or the batch not divided.
        return None


def _advice(change: Change, figures: Figures, *, usual: Figures, available_bytes: int) -> Advice:
    before, after = usual.seconds_per_update, figures.seconds_per_update
    is_comparable = before is not None and after is not None and usual.source == figures.source
    return Advice(
        change=change,
        fits=figures.peak_bytes <= available_bytes,
        peak_bytes=figures.peak_bytes,
        seconds_per_update=after,
        price=after / before - 1 if is_comparable and before and after else None,
    )
