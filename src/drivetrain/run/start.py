"""How a training starts: in this process, on ranks that it launches, or as one rank of many."""

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from drivetrain.console.reporter import Reporter
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.models.own_model import MakeModel
from drivetrain.ranks.rank_place import RankPlace, Start, how_to_start
from drivetrain.recipe.layout import rank_count
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.run.rank_training import launch_training, train_as_rank
from drivetrain.run.request import Request, TrainingSeries, prepare_request
from drivetrain.run.session import RunResult
from drivetrain.run.stopping import StopRequest
from drivetrain.run.train import architecture_of, train_request
from drivetrain.store.directory import RunDirectory

__all__ = ["start_training", "train_resolved"]


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
) -> RunResult:
    """Trains what a recipe describes, or continues it where its directory stands; maybe as part of a job.

    `make_model` makes a model that was given in Python; `sibling` is another run of the job; `on_prepared` is
    called once nothing is wrong with the request. The time of --max-time counts from `began_s` on, in seconds
    since 1970, or from now.
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
        return replace(request, series=series)

    # Nobody but `start_training` keeps the request, and with it the data that it has opened.
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
    """Carries out a prepared request; `data` and `model` are those that were given in Python."""
    start = how_to_start(place, ranks=rank_count(request.recipe))
    if start is Start.AS_RANK:
        assert place is not None
        return train_as_rank(place, request, model=model)
    if start is Start.ALONE:
        return train_request(request, reporter=reporter, model=model, stop=stop)
    resolved, spec, began_s = request.resolved, request.data.spec, request.began_s
    # Ranks open the data by themselves.
    del request
    return launch_training(
        resolved, spec=spec, data=data, model=model, quiet=reporter.is_silent, began_s=began_s
    )


class _OwnModule:
    """The module of a model that was given in Python, once the shape of the data is known."""

    def __init__(self, make: MakeModel | None) -> None:
        self._make = make
        self.module: nn.Module | None = None

    def architecture(self, spec: DataSpec) -> list[str] | None:
        """Makes the module, and tells what makes it the same one again."""
        self.module = None if self._make is None else self._make(spec)
        return architecture_of(self.module)
