"""The folders are what docs/architecture.md says: a strict order, in which imports point downward only."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import drivetrain
from tests.import_graph import find_cycle, import_graph, modules_of, unit_graph, upward_imports

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "drivetrain"
PAGE = ROOT / "docs" / "architecture.md"
# Beside the folders lie the Python interface and the two doors: they may import everything below them.
DOORS = ["", "__main__"]
MOST_FILES = 20


def _order() -> list[str]:
    """The folders of the page's table, lowest first, and the doors above them."""
    table = PAGE.read_text().split("## The folders")[1].split("\n## ")[0]
    return [*re.findall(r"^\| `(\w+)(?:/|\.py)`", table, re.MULTILINE), *DOORS]


def test_the_page_lists_every_folder_once() -> None:
    folders = {module.folder for module in modules_of(SOURCE).values()}
    assert sorted(_order()) == sorted(folders)


def test_no_folder_imports_one_above_it() -> None:
    assert upward_imports(SOURCE, order=_order()) == []


def test_no_modules_import_each_other_in_a_cycle() -> None:
    assert find_cycle(import_graph(SOURCE)) == []


def test_no_parts_of_a_folder_import_each_other_in_a_cycle() -> None:
    assert find_cycle(unit_graph(SOURCE)) == []


def test_no_folder_is_crowded() -> None:
    files = Counter(path.parent for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    assert {str(folder): count for folder, count in files.items() if count > MOST_FILES} == {}


@pytest.mark.parametrize("page", sorted(SOURCE.rglob("*/__init__.py")), ids=lambda page: page.parent.name)
def test_every_folder_says_in_a_sentence_what_lives_there(page: Path) -> None:
    sentence = ast.get_docstring(ast.parse(page.read_text())) or ""
    assert sentence.endswith(".")
    assert len(page.read_text().splitlines()) == 1


def test_no_folder_takes_the_name_of_a_public_function() -> None:
    """An imported folder becomes an attribute of the package, in the place of the function."""
    assert not {module.folder for module in modules_of(SOURCE).values()} & set(drivetrain.__all__)


def test_the_tests_have_the_folders_of_the_source() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    assert [folder for folder in folders if not (SOURCE / folder).is_dir()] == []


def _tree(root: Path, files: dict[str, str]) -> Path:
    package = root / "house"
    for name, text in {"low/__init__.py": "", "high/__init__.py": "", "__init__.py": "", **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


LAZY = "def run() -> None:\n    from house.high.b import go\n"
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.high.b\n"


@pytest.mark.parametrize("text", [LAZY, FOR_TYPES, "from house.high import b\n"])
def test_an_upward_import_is_found_wherever_it_stands(text: str, tmp_path: Path) -> None:
    package = _tree(tmp_path, {"low/a.py": text, "high/b.py": "go = 1\n"})
    assert upward_imports(package, order=["low", "high", ""]) == ["low.a -> high.b"]
    assert upward_imports(package, order=["high", "low", ""]) == []


def test_cycles_are_found(tmp_path: Path) -> None:
    files = {
        "low/one/__init__.py": "",
        "low/one/a.py": "from house.low.two.b import x\n",
        "low/two/__init__.py": "",
        "low/two/b.py": "x = 1\n",
        "low/two/c.py": "def run() -> None:\n    from house.low.one.a import x\n",
    }
    package = _tree(tmp_path, files)
    assert find_cycle(import_graph(package)) == []
    assert set(find_cycle(unit_graph(package))) == {"low.one", "low.two"}
    (package / "low/two/b.py").write_text("def run() -> None:\n    from house.low.two.c import run\n")
    assert {"low.one.a", "low.two.b", "low.two.c"} <= set(find_cycle(import_graph(package)))
