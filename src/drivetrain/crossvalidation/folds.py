"""One fold of a cross-validation, for whichever process trains it."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from drivetrain.console.reporter import Reporter
from drivetrain.crossvalidation.parallel_folds import FoldOutcome
from drivetrain.data.source import DataSplits
from drivetrain.models.own_model import MakeModel
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe
from drivetrain.run.request import Job
from drivetrain.run.share import RunResult
from drivetrain.run.start import train_resolved
from drivetrain.run.stopping import StopRequest
from drivetrain.store.directory import RunDirectory

__all__ = ["FoldRequest", "OpenFold", "train_fold"]

OpenFold = Callable[[Recipe], DataSplits]


@dataclass(frozen=True, slots=True)
class FoldRequest:
    """What a fold's own process gets; it travels by pickle. Its time counts from `began_s` on."""

    resolved: ResolvedRecipe
    open_fold: OpenFold | None
    make_model: MakeModel | None
    sibling: RunDirectory | None
    _: KW_ONLY
    began_s: float

    def train(
        self,
        *,
        reporter: Reporter,
        stop: StopRequest | None = None,
        job: Job | None = None,
        on_prepared: Callable[[], None] | None = None,
    ) -> RunResult:
        """Trains the fold in this process."""
        return train_resolved(
            self.resolved,
            reporter=reporter,
            data=self._data(),
            make_model=self.make_model,
            stop=stop,
            job=job,
            sibling=self.sibling,
            on_prepared=on_prepared,
            began_s=self.began_s,
        )

    def _data(self) -> DataSplits | None:
        return None if self.open_fold is None else self.open_fold(self.resolved.recipe)


def train_fold(request: FoldRequest) -> FoldOutcome:
    with Reporter(quiet=True) as reporter:
        result = request.train(reporter=reporter)
    return FoldOutcome(status=result.status, exit_status=result.exit_status)
