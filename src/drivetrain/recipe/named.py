"""Named recipes: those packaged in `recipes/`, one YAML file each, and those in a user's own YAML file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import MappingNode

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean, shown
from drivetrain.recipe.aliases import target_of
from drivetrain.recipe.merging import Layer, Setting, layer_of
from drivetrain.recipe.yaml_text import YamlDocument, YamlEntry, read_yaml_file

_FOLDER = Path(__file__).parent / "recipes"
_INHERITS = "inherits"
_DESCRIPTION = "description"


@dataclass(frozen=True, slots=True)
class _Definition:
    """One recipe in a file; `title` is put before file and line in the origins of its values."""

    name: str
    document: YamlDocument
    node: MappingNode
    title: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.document.source, self.title, self.name

    def origin(self, entry: YamlEntry) -> str:
        place = f"{self.document.source}:{entry.line}"
        return f"{self.title} ({place})" if self.title else place


_Lookup = Callable[[str, _Definition], _Definition]


def packaged_names() -> list[str]:
    """The names of the packaged recipes, for `--config`."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def packaged_description(name: str) -> str:
    """The one-line description of a packaged recipe."""
    definition = _packaged(name)
    entries = definition.document.entries(definition.node)
    return next(
        (str(definition.document.value(entry.node)) for entry in entries if entry.key == _DESCRIPTION), ""
    )


def packaged_layers(name: str) -> list[Layer]:
    """The layers of a packaged recipe, starting with the recipes it inherits."""
    return _layers(_packaged(name), lookup=lambda parent, _: _packaged(parent), heirs=())


def file_layers(path: Path, *, config: str | None) -> list[Layer]:
    """The layers of a recipe in a file: the only one, or the one named by `config`."""
    if not path.exists() or path.is_dir():
        raise BadInputError(f"--config-path {path} is not a file; name a YAML file with a recipe.")
    document = read_yaml_file(path, source=str(path))
    root = _require_mapping(document)
    named = _definitions(document, root, config=config)
    if named is None:
        if config is not None:
            raise BadInputError(
                f"--config-path {path} contains a single unnamed recipe; leave out --config {shown(config)}."
            )
        return _layers(
            _Definition(path.stem, document, root), lookup=lambda parent, _: _packaged(parent), heirs=()
        )
    return _layers(_picked(named, config, path=path), lookup=_lookup_in(named), heirs=())


def _packaged(name: str) -> _Definition:
    if name not in packaged_names():
        raise _unknown(name, packaged_names(), place="")
    path = _FOLDER / f"{name}.yaml"
    document = read_yaml_file(path, source=path.name)
    return _Definition(name, document, _require_mapping(document), title=f"recipe {name}")


def _require_mapping(document: YamlDocument) -> MappingNode:
    if isinstance(document.root, MappingNode):
        return document.root
    raise BadInputError(
        f"{document.source} does not contain a recipe; write lines of name: value, such as "
        "micro-batch-size: 32."
    )


def _definitions(
    document: YamlDocument, root: MappingNode, *, config: str | None
) -> dict[str, _Definition] | None:
    """The recipes of a file by name, or None when the file is one recipe itself."""
    entries = list(document.entries(root))
    found = {
        entry.key: _Definition(entry.key, document, entry.node)
        for entry in entries
        if isinstance(entry.node, MappingNode)
    }
    is_flat = len(found) < len(entries) or any(_is_option(entry.key) for entry in entries)
    return None if (is_flat or not found) and config not in found else found


def _is_option(key: str) -> bool:
    return key in (_INHERITS, _DESCRIPTION) or target_of(key) is not None


def _picked(named: dict[str, _Definition], config: str | None, *, path: Path) -> _Definition:
    if config is None:
        names = ", ".join(map(shown, named))
        raise BadInputError(
            f"--config-path {path} contains several recipes ({names}); "
            f"choose one, such as --config {shown(next(iter(named)))}."
        )
    if config not in named:
        raise _unknown(config, list(named), place=f" in {path}")
    return named[config]


def _unknown(name: str, known: list[str], *, place: str) -> BadInputError:
    available = ", ".join(map(shown, known))
    return BadInputError(
        f"--config {shown(name)} is not a recipe{place}.{did_you_mean(name, known)} Available: {available}."
    )


def _lookup_in(named: dict[str, _Definition]) -> _Lookup:
    """Finds parents in the file first; a recipe that inherits its own name means the packaged one."""

    def lookup(parent: str, heir: _Definition) -> _Definition:
        is_packaged = heir.title or (parent == heir.name and parent in packaged_names())
        return named[parent] if parent in named and not is_packaged else _packaged(parent)

    return lookup


def _layers(
    definition: _Definition, *, lookup: _Lookup, heirs: tuple[tuple[str, str, str], ...]
) -> list[Layer]:
    """The layers of a definition: the recipe it inherits, what it merges with `<<`, its own settings."""
    heirs = (*heirs, definition.identity)
    document = definition.document
    layers: list[Layer] = []
    for entry in document.entries(definition.node):
        if entry.key == _INHERITS:
            layers += _layers(
                _parent(definition, entry, lookup=lookup, heirs=heirs), lookup=lookup, heirs=heirs
            )
    for node in document.merged(definition.node):
        layers += _layers(
            _Definition(definition.name, document, node, definition.title), lookup=lookup, heirs=heirs
        )
    settings = [
        Setting(entry.key, document.value(entry.node), definition.origin(entry))
        for entry in document.entries(definition.node)
        if entry.key not in (_INHERITS, _DESCRIPTION)
    ]
    return [*layers, layer_of(settings)]


def _parent(
    definition: _Definition, entry: YamlEntry, *, lookup: _Lookup, heirs: tuple[tuple[str, str, str], ...]
) -> _Definition:
    place = f"{definition.document.source}:{entry.line}"
    name = definition.document.value(entry.node)
    if not isinstance(name, str):
        raise BadInputError(f"{place}: inherits takes one recipe's name, such as inherits: digits.")
    try:
        parent = lookup(name, definition)
    except BadInputError as error:
        raise BadInputError(f"{place}: {error}".replace("--config ", "inherits ", 1)) from None
    if parent.identity in heirs:
        raise BadInputError(
            f"{place}: {shown(definition.name)} inherits {shown(name)}, "
            "which inherits it in turn; remove one of the two."
        )
    return parent
