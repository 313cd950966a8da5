from pathlib import Path

from drivetrain.data.finding.found_data import FoundData


def find_data(directory: Path, *, dataset: str | None = None) -> FoundData:
    kind = (
        dataset
        or {"photos": "image-folder", "street": "mask-folder", "mnist": "mnist", "isbi2012": "isbi2012"}[
            directory.name
        ]
    )
    return FoundData(dataset=kind, data_dir=directory, sentence=f"{directory} holds {kind}")
