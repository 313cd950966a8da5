"""A finding of the doctor: a topic, a status and a sentence."""

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Finding", "Status", "gibibytes", "note", "ok", "problem"]

Status = Literal["ok", "note", "problem"]

_GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`ok`: nothing to do; `note`: something is missing or could be better; `problem`: no training runs."""

    topic: str
    status: Status
    sentence: str

    def as_json(self) -> dict[str, Any]:
        """The entry of `doctor --json`."""
        return {"topic": self.topic, "status": self.status, "sentence": self.sentence}


def ok(topic: str, sentence: str) -> Finding:
    """A finding with nothing to do."""
    return Finding(topic=topic, status="ok", sentence=sentence)


def note(topic: str, sentence: str) -> Finding:
    """A finding to know about; training still runs."""
    return Finding(topic=topic, status="note", sentence=sentence)


def problem(topic: str, sentence: str) -> Finding:
    """A finding that keeps training from running."""
    return Finding(topic=topic, status="problem", sentence=sentence)


def gibibytes(num_bytes: int) -> str:
    """A number of bytes as text, such as "1.5 GiB"."""
    return f"{num_bytes / _GIBIBYTE:.1f} GiB"
