"""What the doctor finds: a topic, how it stands, and a sentence."""

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
        """For programs."""
        return {"topic": self.topic, "status": self.status, "sentence": self.sentence}


def ok(topic: str, sentence: str) -> Finding:
    """All is well."""
    return Finding(topic=topic, status="ok", sentence=sentence)


def note(topic: str, sentence: str) -> Finding:
    """Training runs, but there is something to know."""
    return Finding(topic=topic, status="note", sentence=sentence)


def problem(topic: str, sentence: str) -> Finding:
    """Keeps a training from running."""
    return Finding(topic=topic, status="problem", sentence=sentence)


def gibibytes(num_bytes: int) -> str:
    """A size as people say it."""
    return f"{num_bytes / _GIBIBYTE:.1f} GiB"
