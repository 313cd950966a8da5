"""What went wrong in a finished run, from what it recorded."""

from drivetrain.core.files import read_json
from drivetrain.data.source import DataSplits
from drivetrain.findings.findings import training_findings
from drivetrain.findings.record import Measured, TrainingRecord
from drivetrain.run.loop.loop import RunLoop
from drivetrain.run.summary.time_spent import data_bound_of, unit_of
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import read_metrics
from drivetrain.store.stored_plan import kept_reasons

__all__ = ["findings_of"]

# Seconds of waiting for data that are worth a word.
_LONG_S = 5.0


def findings_of(loop: RunLoop, *, update: int, data: DataSplits) -> list[str]:
    """A sentence for everything that stands out, with an option that helps."""
    context, evaluation = loop.context, loop.validations.last
    records = context.program.records
    record = TrainingRecord(
        recipe=context.recipe,
        task=data.spec.task,
        columns={name: records.read(name, 0, update) for name in records.columns},
        validations=tuple(
            event for event in read_metrics(context.directory.metrics) if event["event"] == "validation"
        ),
        image_dtype=data.spec.image_dtype if data.spec.input_kind == "image" else None,
        ended_by=loop.validations.early_end.reason,
        chosen=frozenset(kept_reasons(context.directory.plan)),
        duplicates=_duplicates(context.directory),
    )
    measured = None
    if evaluation is not None and data.validation is not None:
        measured = Measured(evaluation=evaluation, source=data.validation, class_names=data.spec.class_names)
    return training_findings(record, measured, waits=_waiting(loop))


def _waiting(loop: RunLoop) -> str | None:
    """That the device waited for data, if it waited long enough for a change to matter."""
    bound = data_bound_of(loop)
    waited_s = loop.times.feed_seconds[0]
    return None if bound is None or waited_s < _LONG_S else bound.sentence(unit=unit_of(loop))


def _duplicates(directory: RunDirectory) -> tuple[int, tuple[str, str]] | None:
    """Copies of training images in the validation set, by the fingerprint that rules looked at."""
    try:
        found = read_json(directory.fingerprint).get("duplicates")
    except (OSError, ValueError):
        return None
    if not found or not found["count"]:
        return None
    train, validation = found["first"][0]
    return int(found["count"]), (str(train), str(validation))
