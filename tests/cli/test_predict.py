"""The listing that `predict` prints."""

from typing import Any

from drivetrain.cli.predict import _shown


def _row(file: str, page: int) -> dict[str, Any]:
    return {"file": file, "page": page, "height": 4, "width": 6, "mask": "m", "shares": {"cell": 0.5}}


def test_pages_are_numbered_only_in_files_of_several() -> None:
    assert _shown([_row("a.png", 1), _row("b.tif", 1), _row("b.tif", 2)]) == [
        "a.png  4x6  cell 50.0%",
        "b.tif  page 1  4x6  cell 50.0%",
        "b.tif  page 2  4x6  cell 50.0%",
    ]
