"""The two short forms in which SLURM writes lists: host names, and tasks per node."""

import re
from collections.abc import Iterator

from drivetrain.core.errors import BadInputError

__all__ = ["expand_counts", "expand_hosts"]

_ENTRY = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST_HOSTS = 100_000


def expand_hosts(text: str) -> list[str]:
    """`a,node[01-03,7]` is a, node01, node02, node03, node7."""
    entries = _ENTRY.findall(text)
    if not text or ",".join(entries) != text:
        raise _unreadable(text)
    return [host for entry in entries for host in _hosts_of(entry, whole=text)]


def expand_counts(text: str) -> list[int]:
    """`2(x3),1` is 2, 2, 2, 1."""
    counts: list[int] = []
    for entry in text.split(","):
        match = _COUNT.fullmatch(entry.strip())
        if match is None or int(match[2] or 1) > _MOST_HOSTS:
            raise _unreadable(text)
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _hosts_of(entry: str, *, whole: str) -> Iterator[str]:
    """The hosts of one entry; the bracket that stands first varies slowest."""
    before, bracket, rest = entry.partition("[")
    if not bracket:
        yield before
        return
    inside, _, after = rest.partition("]")
    for number in _numbers(inside, whole=whole):
        for ending in _hosts_of(after, whole=whole):
            yield before + number + ending


def _numbers(inside: str, *, whole: str) -> Iterator[str]:
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _unreadable(whole)
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < _MOST_HOSTS:
            raise _unreadable(whole)
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"


def _unreadable(text: str) -> BadInputError:
    return BadInputError(f"{text!r} is not a list as SLURM writes it, such as node[01-04] or 2(x4).")
