"""Reads YAML from untrusted files: plain values only, no duplicate keys, no alias bombs.

Numbers follow YAML 1.2 (1e-3 is a number, 010 is ten, 1:30 is text), and dates stay text. PyYAML itself
follows YAML 1.1, which reads 1e-3 as text, 010 as eight and 1:30 as ninety.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import shown

# Far more than any recipe needs, and small enough that a wrong or hostile file is refused at once.
_LARGEST_FILE_BYTES = 1 << 20
_MOST_NODES = 20_000
_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_PLAIN_TAGS = {_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_REPLACED = {_TAG + name for name in ("int", "float", "timestamp", "value")}


class _PlainLoader(yaml.SafeLoader):
    """SafeLoader that reads numbers by the rules of YAML 1.2."""

    def construct_yaml_int(self, node: ScalarNode) -> int:
        return int(self.construct_scalar(node))


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_PlainLoader.add_constructor(_TAG + "int", _PlainLoader.construct_yaml_int)


class PlainDumper(yaml.SafeDumper):
    """SafeDumper that quotes every text that `_PlainLoader` would read as another type."""

    def represent_str(self, data: str) -> ScalarNode:
        # Unquoted, unusual line separators such as U+0085 would be lost when the file is read back.
        return self.represent_scalar(_TAG + "str", data, style=None if data.isprintable() else '"')


PlainDumper.add_representer(str, PlainDumper.represent_str)


for _resolved in (_PlainLoader, PlainDumper):
    # The first pattern that matches wins, and a whole number matches both, so int must come first.
    _resolved.add_implicit_resolver(_TAG + "int", re.compile(f"^(?:{_WHOLE.pattern})$"), list("-+0123456789"))
    _resolved.add_implicit_resolver(
        _TAG + "float", re.compile(f"^(?:{_NUMBER.pattern})$"), list("-+.0123456789")
    )


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """One key of a mapping, with its line; the value is still a node."""

    key: str
    line: int
    node: Node


class YamlDocument:
    """One parsed and checked YAML document; `source` names it in error messages."""

    def __init__(self, text: str, *, source: str) -> None:
        self.source = source
        try:
            self._loader = _PlainLoader(text)
            root = self._loader.get_single_node()
            _Checker(source).check(root)
        except yaml.YAMLError as error:
            raise _unreadable(error, source=source) from None
        except RecursionError:
            raise BadInputError(f"{source} is nested too deeply; use fewer levels.") from None
        self.root: Node | None = root

    def value(self, node: Node) -> Any:
        """A node as plain Python data."""
        try:
            return self._loader.construct_document(node)
        except yaml.YAMLError as error:
            raise _unreadable(error, source=self.source) from None
        except ValueError as error:
            raise BadInputError(f"{self.where(node)}: {error}.") from None

    def where(self, node: Node) -> str:
        """The file and line of a node, for error messages."""
        return _where(self.source, node.start_mark.line)

    def entries(self, node: MappingNode) -> Iterator[YamlEntry]:
        """The mapping's own keys, in order, without those merged with `<<`."""
        for key, value in node.value:
            if key.tag != _MERGE:
                yield YamlEntry(key.value, key.start_mark.line + 1, value)

    def merged(self, node: MappingNode) -> list[MappingNode]:
        """The mappings merged with `<<`, in increasing precedence."""
        mappings: list[MappingNode] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                parts = value.value if isinstance(value, SequenceNode) else [value]
                mappings += [self._require_mapping(part) for part in reversed(parts)]
        return mappings

    def _require_mapping(self, node: Node) -> MappingNode:
        if isinstance(node, MappingNode):
            return node
        raise BadInputError(f"{self.where(node)}: << takes a mapping or a list of mappings, as in <<: *base.")


class _Checker:
    """Walks a document once and refuses tags, duplicate keys, cycles and too many expanded values."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()

    def check(self, root: Node | None) -> None:
        if root is not None:
            self._size(root)

    def _size(self, node: Node) -> int:
        """The number of values in a node with its aliases expanded."""
        if id(node) in self._open:
            raise self._refuse(node, "the value contains itself through an alias; remove the alias")
        if id(node) not in self._sizes:
            self._open.add(id(node))
            self._check_node(node)
            self._sizes[id(node)] = 1 + sum(self._size(child) for child in _children(node))
            self._open.remove(id(node))
        if self._sizes[id(node)] > _MOST_NODES:
            raise self._refuse(
                node, f"more than {_MOST_NODES} values with aliases expanded; a recipe has fewer"
            )
        return self._sizes[id(node)]

    def _check_node(self, node: Node) -> None:
        if node.tag not in _PLAIN_TAGS:
            tag = shown(node.tag.replace(_TAG, "!!"))
            rule = "a recipe holds text, numbers, true or false, lists and mappings; write the value itself"
            raise self._refuse(node, f"the tag {tag} is not allowed, {rule}")
        if isinstance(node, MappingNode):
            self._check_keys(node)

    def _check_keys(self, node: MappingNode) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise self._refuse(key, "a key must be text, as in name: value")
            if key.value in lines:
                raise self._refuse(
                    key, f"{shown(key.value)} is given twice, first on line {lines[key.value]}; keep one"
                )
            lines[key.value] = key.start_mark.line + 1

    def _refuse(self, node: Node, sentence: str) -> BadInputError:
        return BadInputError(f"{_where(self._source, node.start_mark.line)}: {sentence}.")


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []


def _where(source: str, line: int) -> str:
    """File and line; for YAML typed as an option's value only the option, as it has one line."""
    return source if source.startswith("--") else f"{source}:{line + 1}"


def _unreadable(error: yaml.YAMLError, *, source: str) -> BadInputError:
    mark = getattr(error, "problem_mark", None)
    where = _where(source, mark.line) if mark else source
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return BadInputError(f"{where}: this is not valid YAML ({shown(problem)}); write lines of name: value.")


def read_yaml_file(path: Path, *, source: str) -> YamlDocument:
    """Reads a YAML file, with a limit on its size."""
    return YamlDocument(read_yaml_text(path, source=source), source=source)


def read_yaml_text(path: Path, *, source: str) -> str:
    """The text of a YAML file that is not too large."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise BadInputError(
            f"{source} cannot be read ({error.strerror}); name a YAML file with a recipe."
        ) from None
    if len(content) > _LARGEST_FILE_BYTES:
        raise BadInputError(f"{source} is larger than 1 MiB; a recipe is a short YAML file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInputError(f"{source} is not UTF-8 text; a recipe is a YAML text file.") from None
