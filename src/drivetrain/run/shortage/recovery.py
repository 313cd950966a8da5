"""After memory ran out: all ranks meet again, keep what was reached, and take a smaller micro-batch."""

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from drivetrain.assembly.training_parts import Assembly
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import DrivetrainError, RunFailedError
from drivetrain.core.files import write_json
from drivetrain.inference.model.evaluator import validation_batch_size
from drivetrain.models.module_values import moving_places
from drivetrain.ranks.replica_group import split_ranks
from drivetrain.ranks.shortage_notice import ShortageNotice
from drivetrain.recipe.layout import batch_of, devices_per_replica
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.smaller_batch import smaller_recipes
from drivetrain.run.loop.loop import RunLoop
from drivetrain.run.request import Request, first_possible, fit_to_keep, refit
from drivetrain.run.shortage.advice import no_smaller_batch, other_set, what_follows
from drivetrain.run.shortage.outcome import (
    MemoryRanOutError,
    RankReport,
    ShortagePart,
    is_out_of_memory,
)
from drivetrain.store.checkpoint_paths import checkpoint_paths
from drivetrain.store.metrics_file import SHORTAGE_EVENT, MetricsLog
from drivetrain.store.stored_plan import stored_plan

__all__ = ["Recovery"]


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Runs a loop; if memory runs out on any rank, ends the session on all of them such that it can go on."""

    request: Request
    assembly: Assembly
    reporter: Reporter
    notice: ShortageNotice = field(init=False)

    def __post_init__(self) -> None:
        self.notice = ShortageNotice(self.assembly.program.group)

    def guard(self, loop: RunLoop, work: Callable[[], int]) -> int:
        """Does the work of the loop, which returns the number of finished updates."""
        program = loop.context.program
        try:
            if program.device.is_cpu:
                return work()
            loop.checkpoints.may_be_spoilt = lambda: self.notice.is_given
            with self.notice.heeded(device=program.device.torch_device.type):
                return work()
        except Exception as error:
            report = self._report(error, loop)
            if report is None:
                raise
        # Here the error is gone, and with it the activations that its frames held.
        return self._end(loop, report)

    def _report(self, error: Exception, loop: RunLoop) -> RankReport | None:
        """What this rank tells the others; None if the error has nothing to do with memory."""
        program, ran_out = loop.context.program, is_out_of_memory(error)
        # On an accelerator, a bad loss may be one that was read after its collective was broken off.
        is_own = isinstance(error, DrivetrainError) and program.device.is_cpu
        if ran_out:
            self.notice.give()
        elif is_own or not self.notice.is_given:
            return None
        # The host is ahead of an accelerator, where broken-off collectives leave anything in the gradient.
        is_known = program.device.is_cpu or loop.context.is_alone
        return RankReport(
            rank=program.group.rank,
            ran_out=ran_out,
            finished=loop.finished,
            part=_part(loop),
            is_whole=is_known and _is_whole(loop),
        )

    def _end(self, loop: RunLoop, own: RankReport) -> NoReturn:
        program = loop.context.program
        if program.capture is not None:
            program.capture.release()
        # Activations may lie in reference cycles; saving the state needs some memory too.
        gc.collect()
        program.device.forget_peak_memory()
        group = self.notice.meet_again(device=program.device.torch_device.type)
        reports: list[RankReport] = group.gather(own)
        first = next(report for report in reports if report.ran_out)
        program.rank_sums.groups = split_ranks(
            group, devices_per_replica=devices_per_replica(self.request.recipe)
        )
        if self._can_save(reports, loop):
            loop.require_sound(own.finished)
            with loop.checkpoints.writer:
                loop.checkpoints.save(own.finished)
                loop.checkpoints.wait(own.finished)
        smaller = self._smaller(first)
        resumed: int = group.from_first(self._newest())
        if group.is_first:
            self._note(first, smaller, resumed=resumed)
        group.barrier()
        raise MemoryRanOutError(smaller, group)

    def _can_save(self, reports: list[RankReport], loop: RunLoop) -> bool:
        """Whether all ranks have the same update, which no checkpoint has yet."""
        same = all(report.is_whole and report.finished == reports[0].finished for report in reports)
        return same and self.request.recipe.checkpoints and loop.finished > loop.times.first

    def _newest(self) -> int:
        paths = checkpoint_paths(self.request.directory.checkpoints)
        return max((int(path.name) for path in paths), default=0)

    def _smaller(self, first: RankReport) -> Request:
        # The directory is claimed by now: --overwrite must not erase what is continued.
        recipe = self.request.recipe.model_copy(update={"overwrite": False})
        if first.part == "validation":
            return refit(self.request, self._with_smaller_validation(recipe, first))
        normalises = bool(self.assembly.totals.buffers)
        options = smaller_recipes(recipe, normalises=normalises, may_change_set=recipe.fit)
        found = first_possible(self.request, options)
        if found is not None:
            return found
        changing = first_possible(
            self.request, smaller_recipes(recipe, normalises=normalises, may_change_set=True)
        )
        if changing is None:
            raise RunFailedError(no_smaller_batch(first, recipe))
        raise RunFailedError(other_set(first, recipe, changing.recipe))

    def _with_smaller_validation(self, recipe: Recipe, first: RankReport) -> Recipe:
        size = validation_batch_size(recipe, self.assembly.preprocess)
        if size == 1:
            raise RunFailedError(no_smaller_batch(first, recipe))
        return recipe.model_copy(update={"validation_micro_batch_size": size // 2})

    def _note(self, first: RankReport, smaller: Request, *, resumed: int) -> None:
        """Keeps the choice in the run directory first, then says so."""
        directory, recipe = self.request.directory, smaller.recipe
        write_json(directory.plan, stored_plan(directory.plan) | fit_to_keep(smaller))
        sentence = what_follows(first, self.request.recipe, recipe, resumed=resumed)
        MetricsLog(directory.metrics).append(
            SHORTAGE_EVENT,
            update=resumed,
            rank=first.rank,
            part=first.part,
            finished_updates=first.finished,
            micro_batch_size=recipe.micro_batch_size,
            accumulation=batch_of(recipe).accumulation,
            dbn_replica_group_size=recipe.dbn_replica_group_size,
            validation_micro_batch_size=recipe.validation_micro_batch_size,
            sentence=sentence,
        )
        self.reporter.warn(sentence)


def _part(loop: RunLoop) -> ShortagePart:
    if loop.validations.is_under_way:
        return "validation"
    if not loop.has_begun:
        return "compiling"
    return "optimiser step" if loop.context.program.mover.is_moving else "update"


def _is_whole(loop: RunLoop) -> bool:
    """Whether nothing of an unfinished update is in the state: no step, and no value that passes change."""
    program = loop.context.program
    in_passes = not loop.validations.is_under_way
    return loop.has_begun and not program.mover.is_moving and not (in_passes and moving_places(program.model))
