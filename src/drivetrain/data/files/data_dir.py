"""The folder that `--data-dir` names."""

from pathlib import Path

from drivetrain.core.errors import BadInputError


def existing_folder(data_dir: str | None, *, dataset: str, holding: str) -> Path:
    """--data-dir as a folder that is there; `holding` says what it should hold."""
    if data_dir is None:
        raise BadInputError(f"--dataset {dataset} needs --data-dir DIR, a folder that holds {holding}.")
    folder = Path(data_dir)
    if not folder.is_dir():
        raise BadInputError(f"--data-dir {data_dir} is no folder; give one that holds {holding}.")
    return folder
