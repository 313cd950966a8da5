"""The folder of a suite: a file for each case that has ended, so that the suite can go on after a kill."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.bench.suite.case import Case, SuiteSettings
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_json

__all__ = ["Outcome", "SuiteFolder"]

_SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a case ended: its result, or why there is none. `seconds` is how long its process took."""

    status: str
    why: str = ""
    seconds: float | None = None
    result: Mapping[str, Any] | None = None

    @property
    def is_measured(self) -> bool:
        return self.result is not None


@dataclass(frozen=True, slots=True)
class SuiteFolder:
    """The files of a suite. A case counts as ended once its file has been renamed into place."""

    path: Path

    def begin(self, settings: SuiteSettings) -> None:
        """Creates the folder, or raises if it holds results of other settings."""
        before = self._settings()
        if before is not None and before != settings.to_json():
            values = settings.to_json()
            name = next(key for key in {**before, **values} if before.get(key) != values.get(key))
            raise BadInputError(
                f"--output {self.path} holds results of --{name.replace('_', '-')} {before.get(name)}, not "
                f"of {values.get(name)}; use the same options, or another folder."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.path / _SETTINGS, settings.to_json())
            for name in ("cases", "logs"):
                (self.path / name).mkdir(exist_ok=True)
        except OSError as error:
            raise BadInputError(f"--output {self.path} cannot be written: {error.strerror}.") from error

    def result_path(self, case: Case) -> Path:
        """Where the process of a case writes its result."""
        return self.path / "cases" / f"{case.key}.json"

    def log_path(self, case: Case) -> Path:
        """What the process of a case prints."""
        return self.path / "logs" / f"{case.key}.txt"

    def outcome(self, case: Case) -> Outcome | None:
        """How a case ended; None if it has not, or if its file is damaged."""
        end = _read(self._end_path(case))
        if end is None:
            return None
        result = _read(self.result_path(case)) if end.get("status") == "measured" else None
        if end.get("status") == "measured" and result is None:
            return None
        seconds = end.get("seconds")
        return Outcome(
            status=str(end.get("status")), why=str(end.get("why", "")), seconds=seconds, result=result
        )

    def keep(self, case: Case, outcome: Outcome) -> None:
        """Writes how a case ended; its result has been written by its process."""
        end = {"status": outcome.status, "why": outcome.why, "seconds": outcome.seconds}
        write_json(self._end_path(case), end)

    def forget(self, case: Case) -> None:
        """Removes what is there of a case, so that it is measured again."""
        self._end_path(case).unlink(missing_ok=True)
        self.result_path(case).unlink(missing_ok=True)

    def _end_path(self, case: Case) -> Path:
        return self.path / "cases" / f"{case.key}.end.json"

    def _settings(self) -> dict[str, Any] | None:
        path = self.path / _SETTINGS
        if self.path.exists() and not self.path.is_dir():
            raise BadInputError(f"--output {self.path} is not a folder; --output runs/suite works.")
        if self.path.is_dir() and not path.is_file() and _holds_files(self.path):
            raise BadInputError(
                f"--output {self.path} is a folder with other files; name a new one, such as runs/suite."
            )
        return _read(path)


def _holds_files(folder: Path) -> bool:
    """Whether a folder holds more than what an interrupted write left."""
    return any(not path.name.startswith(".") for path in folder.iterdir())


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
