"""The tests themselves: what several files need lies in helper modules, and each has its marks."""

from pathlib import Path

import pytest

from tests.import_graph import import_graph
from tests.tiers import RANK_FILES, SLOW_FILES, marks_of

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


def test_the_files_that_are_marked_exist() -> None:
    assert [file for file in sorted(RANK_FILES | SLOW_FILES) if not (TESTS / file).is_file()] == []


def test_marks_follow_from_the_file_and_the_fixtures() -> None:
    assert marks_of(min(RANK_FILES - SLOW_FILES), fixtures=[]) == ["ranks"]
    assert marks_of(min(SLOW_FILES - RANK_FILES), fixtures=[]) == ["slow"]
    assert marks_of("core/test_wording.py", fixtures=["tmp_path"]) == []
    assert marks_of("core/test_wording.py", fixtures=["tmp_path", "rank_pool"]) == ["ranks"]
    assert marks_of("data/augment/test_dense_on_accelerator.py", fixtures=[]) == ["accelerator"]


def test_this_session_has_them(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        fixtures = getattr(item, "fixturenames", ())
        expected = marks_of(item.path.relative_to(TESTS).as_posix(), fixtures=fixtures)
        assert set(expected) <= {mark.name for mark in item.iter_markers()}
