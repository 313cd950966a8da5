"""Runs the cases of a suite that have not ended yet, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drivetrain.bench.suite.case import Case, SuiteSettings
from drivetrain.bench.suite.case_process import measure_case
from drivetrain.bench.suite.folder import Outcome, SuiteFolder
from drivetrain.console.reporter import Reporter
from drivetrain.store.lock import hold_lock

__all__ = ["Ended", "run_suite"]

Measure = Callable[..., Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A case with its outcome."""

    case: Case
    outcome: Outcome


def run_suite(
    cases: Sequence[Case],
    settings: SuiteSettings,
    folder: SuiteFolder,
    *,
    reporter: Reporter,
    most_s: float,
    retries: bool = False,
    measure: Measure = measure_case,
) -> list[Ended]:
    """Measures what is missing and returns all cases; with `retries`, cases that failed are missing too."""
    folder.begin(settings)
    with hold_lock(folder.path, option="--output"):
        known = {case: folder.outcome(case) for case in cases}
        missing = [case for case, found in known.items() if _is_missing(found, retries=retries)]
        if len(missing) < len(cases):
            reporter.say(f"{len(cases) - len(missing)} of {len(cases)} cases have been measured before")
        reporter.start_progress("bench suite", done=len(cases) - len(missing), total=len(cases))
        for number, case in enumerate(missing, start=len(cases) - len(missing)):
            reporter.progress(number, case.title)
            folder.forget(case)
            outcome = measure(
                case.arguments(settings),
                output=folder.result_path(case),
                log=folder.log_path(case),
                most_s=most_s,
            )
            folder.keep(case, outcome)
            if outcome.status != "measured":
                reporter.warn(f"{case.title}: {outcome.status}: {outcome.why}")
        reporter.progress(len(cases), "")
        reporter.stop_progress()
    return [Ended(case=case, outcome=_ended(folder, case)) for case in cases]


def _is_missing(found: Outcome | None, *, retries: bool) -> bool:
    return found is None or (retries and not found.is_measured)


def _ended(folder: SuiteFolder, case: Case) -> Outcome:
    found = folder.outcome(case)
    return found or Outcome(status="failed", why=f"{folder.result_path(case)} cannot be read")
