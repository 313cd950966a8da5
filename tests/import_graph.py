"""The import graph of a source tree: imports inside functions and under TYPE_CHECKING count."""

import ast
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
Graph = Mapping[Node, Set[Node]]


@dataclass(frozen=True, slots=True)
class Module:
    """A file of a package, by its dotted name without that of the package; '' is the package itself."""

    name: str
    path: Path

    @property
    def folder(self) -> str:
        """The folder of the package that it lies in; a file beside the folders is its own."""
        return self.name.split(".")[0]

    @property
    def unit(self) -> str:
        """The part of its folder that it belongs to: a sub-package, or the file itself."""
        return ".".join(self.name.split(".")[:2])


def modules_of(root: Path) -> dict[str, Module]:
    """Every module of the package in `root`, by dotted name."""
    found = (Module(_dotted(path.relative_to(root)), path) for path in sorted(root.rglob("*.py")))
    return {module.name: module for module in found}


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(root: Path) -> dict[str, set[str]]:
    """Which modules of the package each of its modules imports, anywhere in its code."""
    modules = modules_of(root)
    return {
        name: {imported for imported in _imported(module, root.name, modules) if imported != name}
        for name, module in modules.items()
    }


def _imported(module: Module, package: str, modules: Mapping[str, Module]) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module.path} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name == package or name.startswith(f"{package}."):
                yield _nearest_module(name.removeprefix(package).removeprefix("."), modules)


def _nearest_module(name: str, modules: Mapping[str, Module]) -> str:
    """`folder.file` where `folder.file.function` is imported."""
    while name not in modules:
        name = name.rpartition(".")[0]
    return name


def upward_imports(root: Path, *, order: list[str]) -> list[str]:
    """Imports of a folder that comes later in `order`, as `importer -> imported`."""
    place = {folder: index for index, folder in enumerate(order)}
    modules = modules_of(root)
    return [
        f"{importer} -> {name}"
        for importer, imported in import_graph(root).items()
        for name in sorted(imported)
        if place[modules[importer].folder] < place[modules[name].folder]
    ]


def unit_graph(root: Path) -> dict[str, set[str]]:
    """The import graph of the sub-packages and files that lie directly in the folders."""
    modules, graph = modules_of(root), defaultdict[str, set[str]](set)
    for importer, imported in import_graph(root).items():
        own = modules[importer].unit
        graph[own] |= {modules[name].unit for name in imported} - {own}
    return dict(graph)


def find_cycle(graph: Graph[Node]) -> list[Node]:
    """One cycle of a graph; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[Node] = error.args[1]
        return cycle
    return []
