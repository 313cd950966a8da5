"""The machine and the software of a run."""

from drivetrain.report.collect.stored_run import StoredRun

__all__ = ["environment_facts"]

_WORDS = {
    "drivetrain": "Drivetrain",
    "python": "Python",
    "torch": "torch",
    "accelerator_libraries": "CUDA or ROCm",
    "system": "system",
    "device": "device",
    "processor": "processor",
    "cores": "CPU cores",
    "threads": "threads of rank 0",
    "ranks": "ranks",
    "precision": "precision",
    "compile": "compile",
    "capture": "capture",
}


def environment_facts(run: StoredRun) -> list[tuple[str, str]]:
    """What environment.json holds; the summary of a finished run knows what became of compile and capture."""
    known = {**run.environment}
    for name in ("device", "precision", "compile", "capture"):
        if name in run.summary:
            known[name] = run.summary[name]
    return [(words, str(known[name])) for name, words in _WORDS.items() if known.get(name) is not None]
