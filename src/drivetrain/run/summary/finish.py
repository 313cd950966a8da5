"""The end of a run: summary event, figures, README.md and the last lines on the terminal."""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from drivetrain.catalogue.metrics import shown_metric
from drivetrain.catalogue.tasks import TaskName
from drivetrain.console.figures import rounded_speed, speed_text, table_lines
from drivetrain.core.files import write_json
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import DataSplits
from drivetrain.inference.evaluate.evaluation_files import write_evaluation
from drivetrain.program.training_program import TrainingProgram
from drivetrain.run.loop.loop import RunLoop
from drivetrain.run.reporting.loss_scale_report import scale_values, skipped_in_words
from drivetrain.run.reporting.replica_efficiency import Scaling, scaling_of
from drivetrain.run.summary.findings_of_run import findings_of
from drivetrain.run.summary.mask_pictures import draw_mask_predictions
from drivetrain.run.summary.part_words import PART_WORDS
from drivetrain.run.summary.pictures import draw_curves, draw_predictions
from drivetrain.run.summary.report_page import write_readme
from drivetrain.run.summary.time_spent import data_bound_of, suggest, time_spent, unit_of
from drivetrain.state.updates_file import save_history

# Parts that would be printed as 0% are left out.
_WORTH_A_WORD = 0.005


def finish_run(
    loop: RunLoop,
    *,
    update: int,
    data: DataSplits,
    preprocess: Preparation,
    program: TrainingProgram,
) -> dict[str, Any]:
    """Writes summary, figures and README.md of a finished run; returns the summary event.

    `program` holds the whole model, even if it was trained in stages.
    """
    context = loop.context
    save_history(context.directory.updates, context.program.records, updates=update)
    spent = time_spent(loop)
    summary = _summary(loop, spent)
    summary |= scale_values(context.program.records, 0, update)
    if data.bad_samples:
        summary["bad_samples"] = len(data.bad_samples)
    findings = findings_of(loop, update=update, data=data)
    if findings:
        summary["findings"] = findings
    context.log.summary(update, **summary)
    with context.clock.measure("pictures"), context.reporter.showing("drawing figures"):
        draw_curves(context.directory)
        _draw_validation(loop, data=data, preprocess=preprocess, program=program)
    # The summary event comes before the figures: a run whose figures fail is finished all the same.
    spent = time_spent(loop)
    summary |= _account(loop, spent)
    if loop.validations.last is not None and data.validation is not None:
        write_evaluation(
            context.directory, loop.validations.last, source=data.validation, names=data.spec.class_names
        )
    _write_bad_samples(loop, data)
    if context.recipe.clean_dir:
        shutil.rmtree(context.directory.checkpoints, ignore_errors=True)
    write_readme(context.directory, summary=summary, recipe=context.recipe, unit=unit_of(loop))
    _say_summary(loop, summary, spent)
    skipped = skipped_in_words(summary, updates=update)
    if skipped is not None:
        context.reporter.say(skipped)
    return summary


def _draw_validation(
    loop: RunLoop, *, data: DataSplits, preprocess: Preparation, program: TrainingProgram
) -> None:
    """Draws predictions/validation.png with the weights that were validated (averaged ones with --ema)."""
    if data.validation is None or data.spec.input_kind != "image":
        return
    context = loop.context
    drawings: dict[TaskName, Callable[..., None]] = {
        "classification": partial(draw_predictions, preprocess=preprocess),
        "segmentation": partial(draw_mask_predictions, recipe=context.recipe, spec=data.spec),
    }
    with program.weights_to_measure():
        drawings[data.spec.task](
            context.directory, program=program, data=data, evaluation=loop.validations.last
        )


def _write_bad_samples(loop: RunLoop, data: DataSplits) -> None:
    """bad_samples.json: every sample that was left out, and why."""
    if data.bad_samples:
        listed = [asdict(sample) for sample in data.bad_samples]
        write_json(loop.context.directory.path / "bad_samples.json", {"bad_samples": listed})
        loop.context.reporter.say(f"{len(listed)} unreadable samples were left out, see bad_samples.json")


def _summary(loop: RunLoop, spent: dict[str, float]) -> dict[str, Any]:
    context = loop.context
    summary: dict[str, Any] = {
        "status": "finished",
        "time_to_train_seconds": round(context.clock.elapsed_s, 3),
        "compile_seconds": round(loop.compile_s, 3),
        "images_per_second": rounded_speed(loop.times.images_per_second),
        "peak_memory_bytes": context.program.device.peak_memory_bytes,
        "device": context.program.device.description,
        "precision": context.program.precision.description,
        **_account(loop, spent),
    }
    if loop.choice is not None:
        summary["compile"] = "; ".join([loop.choice.sentence, *context.program.compiled.problems])
    if not context.program.device.is_cpu:
        summary["capture"] = context.program.capture_status
    bound = data_bound_of(loop)
    if bound is not None:
        summary["data_bound"] = bound.to_json()
    if len(loop.replica_times) > 1:
        summary |= _scaling(loop).to_json()
    if loop.profile is not None and (profile := loop.profile.summary()) is not None:
        summary["profile"] = profile
    if loop.validations.early_end.reason is not None:
        summary["ended_by"] = loop.validations.early_end.reason
    if loop.validations.last is not None:
        summary |= {"validation": loop.validations.last.as_metrics(), "best": loop.validations.best.as_json()}
    return summary


def _account(loop: RunLoop, spent: dict[str, float]) -> dict[str, Any]:
    """Where the time went, and one suggestion to save some of it."""
    suggestion = suggest(spent, recipe=loop.context.recipe, processor_share=loop.times.processor_share)
    advice = _scaling(loop).advice if len(loop.replica_times) > 1 else None
    if advice is not None and max(spent, key=lambda part: spent[part]) in ("step", "data"):
        suggestion = f"ranks mostly wait for {advice}."
    seconds = {part: round(part_s, 3) for part, part_s in spent.items()}
    return {"seconds": seconds, "suggestion": suggestion}


def _scaling(loop: RunLoop) -> Scaling:
    return scaling_of(
        loop.replica_times,
        images_per_second=loop.times.images_per_second,
        devices=loop.context.program.groups.devices.size,
    )


def _say_summary(loop: RunLoop, summary: dict[str, Any], spent: dict[str, float]) -> None:
    say = loop.context.reporter.say
    total = sum(spent.values())
    say(
        f"time to train: {summary['time_to_train_seconds']:.1f} s "
        f"({'compilation' if loop.compiles else 'first update'} "
        f"{summary['compile_seconds']:.2f} s), "
        f"{speed_text(summary['images_per_second'])} {unit_of(loop)}/s"
    )
    if "capture" in summary:
        say(f"updates: {summary['capture']}")
    if len(loop.replica_times) > 1:
        say(_scaling(loop).sentence(unit=unit_of(loop)))
    if loop.validations.early_end.reason is not None:
        say(f"ended early by {loop.validations.early_end.reason}")
    shares = {part: seconds / total for part, seconds in spent.items()}
    listed = [
        part for part in sorted(shares, key=lambda part: -shares[part]) if shares[part] >= _WORTH_A_WORD
    ]
    words = (f"{PART_WORDS.get(part, part)} {shares[part]:.0%}" for part in listed)
    say("where the time went: " + ", ".join(words))
    say(f"suggestion: {summary['suggestion']}")
    for finding in summary.get("findings", ()):
        say(f"finding: {finding}")
    if loop.validations.last is not None:
        _say_validation(loop, loop.validations.last.as_metrics())
        say(f"run directory: {loop.context.directory.path}")
    else:
        loop.context.reporter.result(f"run directory: {loop.context.directory.path}")


def _say_validation(loop: RunLoop, metrics: dict[str, float]) -> None:
    """Prints the last validation, with a table by class in segmentation, and the best one."""
    best = loop.validations.best
    by_class = table_lines(metrics)
    for line in ["validation by class:", *by_class] if by_class else []:
        loop.context.reporter.say(line)
    words = shown_metric(best.metric)
    name = f"validation_{best.metric}" if words == best.metric else f"validation {words}"
    last = "-" if best.metric not in metrics else f"{metrics[best.metric]:.4f}"
    chosen = "no best validation" if best.value is None else f"best {best.value:.4f} at update {best.update}"
    loop.context.reporter.result(f"{name}: {last} ({chosen})")
