"""Reads the documentation: fenced blocks with their commands, links, and the files that a page names."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
# A fence without a language counts as a command, so that a block cannot escape by saying nothing.
COMMAND_LANGUAGES = ("", "sh", "bash", "shell", "console")

_FENCE = re.compile(r"^\s*```(\w*)\s*$")
_NEEDS = re.compile(r"\bneeds:\s*(?P<what>.+?)\s*(?:-->)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page; `line` is that of its opening fence, `needs` what its mark says."""

    page: Path
    line: int
    language: str
    text: str
    needs: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_commands(self) -> bool:
        return self.language in COMMAND_LANGUAGES

    def commands(self) -> list[list[str]]:
        """The words of each command; comments are left out and lines that end in a backslash are joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def pages() -> list[Path]:
    """README.md and every page of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks_of(page: Path, text: str | None = None) -> list[Block]:
    """The fenced blocks of a page, in order; an open fence is an error."""
    lines = (page.read_text() if text is None else text).splitlines()
    blocks: list[Block] = []
    opened: int | None = None
    language = ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if opened is None:
            opened, language = number, fence.group(1)
            continue
        inside = "\n".join(lines[opened + 1 : number])
        needs = _mark_above(lines[:opened])
        blocks.append(Block(page=page, line=opened + 1, language=language, text=inside, needs=needs))
        opened = None
    assert opened is None, f"{page.name}:{opened} opens a fence that is never closed"
    return blocks


def _mark_above(lines: list[str]) -> str | None:
    """What `needs: ...` in the nearest line of text above says, be it a comment or visible."""
    above = next((line for line in reversed(lines) if line.strip()), "")
    found = _NEEDS.search(above.strip())
    return None if found is None else found.group("what")


def outside_of_fences(page: Path) -> list[str]:
    """The lines of a page that are in no fenced block."""
    lines, is_inside = [], False
    for line in page.read_text().splitlines():
        if _FENCE.match(line):
            is_inside = not is_inside
        elif not is_inside:
            lines.append(line)
    return lines


def links_of(page: Path) -> list[str]:
    """The files that a page links to, without anchors and without the web."""
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", "\n".join(outside_of_fences(page)))
    return [target for target in targets if "://" not in target]


def source_files_of(page: Path) -> list[str]:
    """The Python files that a page names with a folder, as `data/order.py`; `NAME.py` is for the reader."""
    names = re.findall(r"`([\w./]+/[\w/]+\.py)`", page.read_text())
    return [name for name in names if not name.endswith("/NAME.py")]
