"""How many bytes of pictures a page may hold."""

import base64
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PictureBudget", "not_shown"]

_KINDS = {".png": "image/png", ".jpg": "image/jpeg"}


@dataclass(slots=True, kw_only=True)
class PictureBudget:
    """Turns pictures into data URIs as long as bytes are left; counts those that were left out."""

    bytes_left: int
    left_out: int = 0

    def take(self, paths: list[Path]) -> list[str] | None:
        """The pictures as data URIs; None if one is missing, or if not all of them fit."""
        # A link could lead to any file of the machine.
        if any(path.is_symlink() for path in paths):
            return None
        try:
            contents = [path.read_bytes() for path in paths]
        except OSError:
            return None
        uris = [_uri(content, path) for content, path in zip(contents, paths, strict=True)]
        needed = sum(map(len, uris))
        if needed > self.bytes_left:
            self.left_out += len(paths)
            return None
        self.bytes_left -= needed
        return uris


def not_shown(budget: PictureBudget, *, alone: str) -> list[str]:
    """A sentence about the pictures that were left out, and whose page shows more; none if all fit."""
    if not budget.left_out:
        return []
    return [
        f"{budget.left_out} example pictures are left out to keep the page small; the page of {alone} shows "
        "more."
    ]


def _uri(content: bytes, path: Path) -> str:
    return f"data:{_KINDS[path.suffix]};base64,{base64.b64encode(content).decode()}"
