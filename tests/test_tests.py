"""The tests themselves: what several files need lies in helper modules."""

from pathlib import Path

import pytest

from tests.import_graph import import_graph

TESTS = Path(__file__).parent


def imported_test_modules(root: Path) -> list[str]:
    """Imports of files of tests, as `importer -> imported`."""
    return [
        f"{importer} -> {name}"
        for importer, imported in import_graph(root).items()
        for name in sorted(imported)
        if name.rpartition(".")[2].startswith("test_")
    ]


def test_no_file_imports_a_file_of_tests() -> None:
    assert imported_test_modules(TESTS) == []


@pytest.mark.parametrize(
    "text", ["from house.test_b import go\n", "def run() -> None:\n    import house.test_b\n"]
)
def test_an_import_of_a_file_of_tests_is_found_wherever_it_stands(text: str, tmp_path: Path) -> None:
    house = tmp_path / "house"
    house.mkdir()
    files = {
        "__init__.py": "",
        "test_a.py": text,
        "test_b.py": "from house.helper import go\n",
        "helper.py": "",
    }
    for name, content in files.items():
        (house / name).write_text(content)
    assert imported_test_modules(house) == ["test_a -> test_b"]
