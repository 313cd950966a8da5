"""Notes on the recipe's fields: what the rest of the system needs to know about each option.

`drivetrain.recipe.fields` derives every list of fields from these notes, so adding an option means adding
one field to the schema.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import reduce
from operator import or_
from typing import Literal, get_args

from pydantic.fields import FieldInfo

from drivetrain.catalogue.tasks import TaskName

Group = Literal["model", "data", "batch", "pipeline", "length", "optimisation", "events", "run"]
Choice = Literal["batch", "replicas", "logs"]

GROUPS: tuple[Group, ...] = get_args(Group)


class Fact(Enum):
    """A property that a field has, whatever its value."""

    PER_HOST = "may differ between hosts; all other fields must be equal on all ranks, or collectives hang"
    WORK = "changes what an update computes, and so how much time compiling saves"
    LENGTH = "changes how much is left to train, even in a finished fold"
    COMPUTING = "says how the model of a finished run is computed"
    ONE_CALL = "applies to one call and is not stored in the run's recipe"
    OF_A_MODEL = "belongs to the named model and is dropped when another model is chosen"
    PACE = "says how often something happens during training"
    OF_IMAGES = "needs images; rows of a table and signals have no pixels"
    LATER = "was added after run directories were named by a hash; its default is left out of the hash"


class Measuring(Flag):
    """The commands that run a recipe only to measure: `verify`, and `bench` on each kind of data."""

    VERIFY = auto()
    REAL_DATA = auto()
    HOST_NOISE = auto()
    DEVICE_NOISE = auto()
    INFERENCE = auto()
    DELIVERY = auto()


@dataclass(frozen=True, slots=True)
class OfTask:
    """The field belongs to one task. Messages name the field with the highest urgency first."""

    task: TaskName
    urgency: int = 0


@dataclass(frozen=True, slots=True)
class NeedsStages:
    """The field has no effect without pipeline stages. The highest urgency is named first."""

    urgency: int = 0


@dataclass(frozen=True, slots=True)
class IdleWith:
    """The field has no effect while the field `cause` has `value`. The highest urgency is named first.

    With `alone` this holds only for a single rank: pipeline stages have several ranks without replicas.
    """

    cause: str
    value: object
    urgency: int = 0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class IdleIn:
    """The field has no effect in these measurements."""

    measurements: Measuring


@dataclass(frozen=True, slots=True)
class UsedIn:
    """The field has an effect in these measurements, although most of its group has none."""

    measurements: Measuring


@dataclass(frozen=True, slots=True)
class OfAugmentation:
    """The field is a random augmentation of training images; the value `off` turns it off."""

    off: object


@dataclass(frozen=True, slots=True)
class AlternativeFor:
    """The field is one of several ways to set the same thing; the one set last replaces the others."""

    choice: Choice


Mark = Fact | OfTask | NeedsStages | IdleWith | IdleIn | UsedIn | OfAugmentation | AlternativeFor


@dataclass(frozen=True, slots=True)
class FieldNote:
    """The note on a field: its group on the help page, its marks, whether a continued run may change it."""

    group: Group
    marks: tuple[Mark, ...] = ()
    may_change: bool = False

    @property
    def idle_in(self) -> Measuring:
        """The measurements in which the field is marked as having no effect."""
        return _union(mark.measurements for mark in self.marks if isinstance(mark, IdleIn))

    @property
    def used_in(self) -> Measuring:
        """The measurements in which the field is marked as used, whatever its group."""
        return _union(mark.measurements for mark in self.marks if isinstance(mark, UsedIn))


def _union(measurements: Iterable[Measuring]) -> Measuring:
    return reduce(or_, measurements, Measuring(0))


_NOISE = Measuring.HOST_NOISE | Measuring.DEVICE_NOISE
_TRAINING = Measuring.REAL_DATA | _NOISE
_EVERY = ~Measuring(0)

PER_HOST, WORK, LENGTH, COMPUTING = Fact.PER_HOST, Fact.WORK, Fact.LENGTH, Fact.COMPUTING
ONE_CALL, OF_A_MODEL, PACE, LATER = Fact.ONE_CALL, Fact.OF_A_MODEL, Fact.PACE, Fact.LATER
OF_IMAGES = Fact.OF_IMAGES
SEGMENTATION, CLASSIFICATION = OfTask("segmentation", urgency=1), OfTask("classification")
UNMEASURED, MEASURED = IdleIn(_EVERY), UsedIn(_EVERY)
NOT_IN_VERIFY, NOT_IN_TRAINING = IdleIn(Measuring.VERIFY), IdleIn(_TRAINING)
# Generated noise has no files, folds or bad samples, and as many samples as needed.
NO_NOISE = IdleIn(_NOISE)
# Noise on the device is ready for the model: nothing loads, shuffles, preprocesses or augments it.
NOT_WHEN_READY = IdleIn(Measuring.DEVICE_NOISE)
NOT_IN_DELIVERY = IdleIn(Measuring.DELIVERY)
IN_INFERENCE, IN_DELIVERY = UsedIn(Measuring.INFERENCE), UsedIn(Measuring.DELIVERY)


def idle(*, urgency: int = 0, alone: bool = False, **having: object) -> IdleWith:
    """Marks a field as having no effect while another has a value, as in `idle(validation=False)`."""
    ((cause, value),) = having.items()
    return IdleWith(cause, value, urgency=urgency, alone=alone)


def augmentation(*, off: object = 0) -> tuple[Mark, ...]:
    """The marks of every augmentation."""
    return OfAugmentation(off), WORK, NOT_WHEN_READY


def note_of(info: FieldInfo) -> FieldNote:
    """The note on a field."""
    return next(entry for entry in info.metadata if isinstance(entry, FieldNote))


def check_notes(fields: Mapping[str, FieldInfo]) -> None:
    """Raises TypeError for fields without a note, and for notes with unknown fields or contradictions."""
    for field, info in fields.items():
        if not any(isinstance(entry, FieldNote) for entry in info.metadata):
            raise TypeError(f"recipe field {field} has no note")
        note = note_of(info)
        causes = [mark.cause for mark in note.marks if isinstance(mark, IdleWith)]
        unknown = [cause for cause in causes if cause not in fields]
        if unknown:
            raise TypeError(f"the note on recipe field {field} names {unknown[0]}, which is not a field")
        if note.idle_in & note.used_in:
            raise TypeError(
                f"the note on recipe field {field} marks it as idle and as used in one measurement"
            )
