"""Notes on the recipe's fields: what the rest of the system knows of a field, written beside it.

`drivetrain.recipe.fields` makes every list of fields from them, so a new option is one field of the schema.
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
    """What is simply true of a field."""

    PER_HOST = "each host may have its own; in all else ranks must be alike, or they would wait in vain"
    WORK = "it changes what an update computes, and so what compiling gains"
    LENGTH = "another value in a finished fold leaves more, or less, to train"
    COMPUTING = "it says how the model of a finished run is computed"
    ONE_CALL = "it is meant for one call and is no part of a run's own recipe"
    OF_A_MODEL = "it speaks of the named model and does not follow to another one"
    PACE = "it says how often something happens in a training"
    LATER = "it came after run directories were named by a hash, and its None is left out of that"


class Measuring(Flag):
    """What trains, or runs, a recipe only to measure."""

    VERIFY = auto()
    REAL_DATA = auto()
    HOST_NOISE = auto()
    DEVICE_NOISE = auto()
    INFERENCE = auto()
    DELIVERY = auto()


@dataclass(frozen=True, slots=True)
class OfTask:
    """A field belongs to one task; of several, the most urgent is named first, then the schema's first."""

    task: TaskName
    urgency: int = 0


@dataclass(frozen=True, slots=True)
class NeedsStages:
    """A field does nothing for a model in one piece; the most urgent is named first."""

    urgency: int = 0


@dataclass(frozen=True, slots=True)
class IdleWith:
    """A field does nothing while another one has a value; of several, the most urgent is named first.

    With `alone` that is so only where there is one rank: stages have ranks too.
    """

    cause: str
    value: object
    urgency: int = 0
    alone: bool = False


@dataclass(frozen=True, slots=True)
class IdleIn:
    """A field does nothing in some measurements."""

    measurements: Measuring


@dataclass(frozen=True, slots=True)
class UsedIn:
    """A field is of use in measurements where most of its group do nothing."""

    measurements: Measuring


@dataclass(frozen=True, slots=True)
class OfAugmentation:
    """A field changes training images at random, unless it has the value `off`."""

    off: object


@dataclass(frozen=True, slots=True)
class AlternativeFor:
    """A field is one of several ways to say the same; a later one takes the place of the others."""

    choice: Choice


Mark = Fact | OfTask | NeedsStages | IdleWith | IdleIn | UsedIn | OfAugmentation | AlternativeFor


@dataclass(frozen=True, slots=True)
class FieldNote:
    """What is noted on a field: its group on the help page, whether a continued run may change it, marks."""

    group: Group
    marks: tuple[Mark, ...] = ()
    may_change: bool = False

    @property
    def idle_in(self) -> Measuring:
        """The measurements that are named as having no use for the field."""
        return _union(mark.measurements for mark in self.marks if isinstance(mark, IdleIn))

    @property
    def used_in(self) -> Measuring:
        """The measurements that are named as using the field, whatever its group."""
        return _union(mark.measurements for mark in self.marks if isinstance(mark, UsedIn))


def _union(measurements: Iterable[Measuring]) -> Measuring:
    return reduce(or_, measurements, Measuring(0))


# Marks that several fields have; the schema reads better with their names.

_NOISE = Measuring.HOST_NOISE | Measuring.DEVICE_NOISE
_TRAINING = Measuring.REAL_DATA | _NOISE
_EVERY = ~Measuring(0)

PER_HOST, WORK, LENGTH, COMPUTING = Fact.PER_HOST, Fact.WORK, Fact.LENGTH, Fact.COMPUTING
ONE_CALL, OF_A_MODEL, PACE, LATER = Fact.ONE_CALL, Fact.OF_A_MODEL, Fact.PACE, Fact.LATER
SEGMENTATION, CLASSIFICATION = OfTask("segmentation", urgency=1), OfTask("classification")
UNMEASURED, MEASURED = IdleIn(_EVERY), UsedIn(_EVERY)
NOT_IN_VERIFY, NOT_IN_TRAINING = IdleIn(Measuring.VERIFY), IdleIn(_TRAINING)
# Noise has no files, no folds, no bad samples, and as many samples as an update takes.
NO_NOISE = IdleIn(_NOISE)
# Batches that lie on the device ready for the model are shown as they are.
NOT_WHEN_READY = IdleIn(Measuring.DEVICE_NOISE)
NOT_IN_DELIVERY = IdleIn(Measuring.DELIVERY)
IN_INFERENCE, IN_DELIVERY = UsedIn(Measuring.INFERENCE), UsedIn(Measuring.DELIVERY)


def idle(*, urgency: int = 0, alone: bool = False, **having: object) -> IdleWith:
    """The mark of a field that does nothing while another one has a value: `idle(validation=False)`."""
    ((cause, value),) = having.items()
    return IdleWith(cause, value, urgency=urgency, alone=alone)


def augmentation(*, off: object = 0) -> tuple[Mark, ...]:
    """The marks of every augmentation."""
    return OfAugmentation(off), WORK, NOT_WHEN_READY


# Reading and checking.


def note_of(info: FieldInfo) -> FieldNote:
    """The note on a field."""
    return next(entry for entry in info.metadata if isinstance(entry, FieldNote))


def check_notes(fields: Mapping[str, FieldInfo]) -> None:
    """Refuses fields without a note, and notes that name no field or contradict themselves."""
    for field, info in fields.items():
        if not any(isinstance(entry, FieldNote) for entry in info.metadata):
            raise TypeError(f"recipe field {field} has no note")
        note = note_of(info)
        causes = [mark.cause for mark in note.marks if isinstance(mark, IdleWith)]
        unknown = [cause for cause in causes if cause not in fields]
        if unknown:
            raise TypeError(f"the note on recipe field {field} names {unknown[0]}, which is no field")
        if note.idle_in & note.used_in:
            raise TypeError(f"the note on recipe field {field} says idle and used of one measurement")
