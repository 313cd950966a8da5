"""Every script and style of the page is joined in, once, with what its licence asks for."""

from pathlib import Path

import drivetrain.report.page
from drivetrain.report.page.assets import SCRIPTS, STYLES, page_script, page_style, uplot_licence

ASSETS = Path(drivetrain.report.page.__file__).parent / "assets"


def _names(folder: str) -> list[str]:
    return sorted(path.stem for path in (ASSETS / folder).iterdir())


def test_each_file_has_its_place() -> None:
    assert _names("script") == sorted(SCRIPTS)
    assert _names("style") == sorted(STYLES)
    assert len(SCRIPTS) <= 20


def test_nothing_in_them_ends_their_element() -> None:
    assert "</script" not in page_script().lower()
    assert "</style" not in page_style().lower()


def test_our_scripts_never_write_markup() -> None:
    written = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function")
    ours = {path.name: path.read_text() for path in (ASSETS / "script").iterdir()}
    assert [(name, word) for name, text in ours.items() for word in written if word in text] == []


def test_nothing_is_fetched() -> None:
    ours = "".join(path.read_text() for folder in ("script", "style") for path in (ASSETS / folder).iterdir())
    assert "fetch(" not in ours
    assert "@import" not in ours
    assert "url(" not in ours
    assert ours.replace("http://www.w3.org/2000/svg", "").count("://") == 0


def test_uplot_carries_its_licence() -> None:
    assert "MIT License" in uplot_licence()
    assert "uPlot" in page_script()
    assert ".uplot" in page_style()
