"""How a training starts: in this process, on ranks that it launches, or as one rank of many."""

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from drivetrain.console.reporter import Reporter
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.models.own_model import MakeModel
from drivetrain.models.weights.published import fetch_published
from drivetrain.ranks.rank_place import RankPlace, Start, how_to_start
from drivetrain.recipe.layout import rank_count
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.run.rank_training import launch_training, train_as_rank
from drivetrain.run.request import Request, TrainingSeries, prepare_request
from drivetrain.run.session import RunResult
from drivetrain.run.stopping import StopRequest
from drivetrain.run.train import architecture_of, train_request
from drivetrain.store.directory import RunDirectory

__all__ = ["FitRequest", "start_training", "train_resolved"]

FitRequest = Callable[[Request, nn.Module | None], Request]


def train_resolved(
    resolved: ResolvedRecipe,
    *,
    reporter: Reporter,
    data: DataSplits | None = None,
    make_model: MakeModel | None = None,
    stop: StopRequest | None = None,
    series: TrainingSeries | None = None,
    sibling: RunDirectory | None = None,
    on_prepared: Callable[[], None] | None = None,
    began_s: float | None = None,
    fit: FitRequest | None = None,
) -> RunResult:
    """Trains a recipe, or continues its run if the run directory holds one.

    `make_model` builds a model given in Python; `sibling` is another fold of the same cross-validation;
    `on_prepared` is called once all checks have passed. --max-time counts from `began_s` on (seconds since
    1970; default: now). `fit` finds a micro-batch that fits the memory (--fit).
    """
    own = _OwnModule(make_model)

    def prepare() -> Request:
        request = prepare_request(
            resolved,
            data=data,
            own_model=own.architecture,
            sibling=sibling,
            began_s=began_s,
            reporter=reporter,
        )
        if on_prepared is not None:
            on_prepared()
        request = replace(request, series=series)
        return request if fit is None or not request.recipe.fit else fit(request, own.module)

    # No local variable holds the request: `start_training` can then free its data before it launches ranks.
    return start_training(prepare(), reporter=reporter, data=data, model=own.module, stop=stop)


def start_training(
    request: Request,
    *,
    reporter: Reporter,
    place: RankPlace | None = None,
    data: DataSplits | None = None,
    model: nn.Module | None = None,
    stop: StopRequest | None = None,
) -> RunResult:
    """Runs a prepared request, in this process or on ranks; `data` and `model` were given in Python."""
    _fetch_weights(request, reporter=reporter)
    start = how_to_start(place, ranks=rank_count(request.recipe))
    if start is Start.AS_RANK:
        assert place is not None
        return train_as_rank(place, request, model=model)
    if start is Start.ALONE:
        return train_request(request, reporter=reporter, model=model, stop=stop)
    resolved, spec, began_s = request.resolved, request.data.spec, request.began_s
    # Ranks open the data themselves; this process must not hold a second copy in memory.
    del request
    return launch_training(
        resolved, spec=spec, data=data, model=model, quiet=reporter.is_silent, began_s=began_s
    )


def _fetch_weights(request: Request, *, reporter: Reporter) -> None:
    """Downloads the weights of --pretrained before any rank starts; a continued run has its own."""
    recipe = request.recipe
    if recipe.pretrained is True and not request.has_weights:
        fetch_published(recipe.model, params=recipe.model_params, say=reporter.say)


class _OwnModule:
    """A model given in Python, built once the shape of the data is known."""

    def __init__(self, make: MakeModel | None) -> None:
        self._make = make
        self.module: nn.Module | None = None

    def architecture(self, spec: DataSpec) -> list[str] | None:
        """Builds the module; returns its architecture, by which a continued run recognises it."""
        self.module = None if self._make is None else self._make(spec)
        return architecture_of(self.module)
