"""The commands of the documentation work, and what it links to exists.

Every fenced command block of README.md and docs/*.md is run here with small settings on small data, or a
line directly above it says what it needs: `<!-- needs: an accelerator -->`. Of a marked block the options
are still parsed, so that a renamed option is noticed.
"""

import gzip
import re
import shlex
import struct
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from drivetrain.cli.main import COMMANDS, main
from drivetrain.cli.options import OneSentenceParser, normalise_argv
from tests.data.folders import write_images
from tests.data.mask_files import classes, grey, save
from tests.data.sources.cifar_files import write_binary10
from tests.data.sources.isbi_files import write_isbi
from tests.doc_pages import ROOT, Block, blocks_of, links_of, outside_of_fences, pages, source_files_of

LADDER = ROOT / "docs" / "mnist_ladder.md"
LINKED = [*pages(), ROOT / "CONTRIBUTING.md"]
# Options that a command gets, or whose value is replaced, so that it takes a moment.
_TRAINING = {
    "--limit-train-samples": "64",
    "--limit-validation-samples": "16",
    "--num-epochs": "1",
    "--num-threads": "1",
}
_MEASUREMENT = {"--steps": "1", "--repeats": "1", "--warmup-steps": "1"}
SMALL = {
    "train": _TRAINING,
    "crossval": {**_TRAINING, "--folds": "2"},
    "verify": {"--layouts": "accumulation=2", "--updates": "1", "--dtype": "float64", "--num-threads": "1"},
    "bench": _MEASUREMENT,
}
# A shell's own business, which a process of its own cannot do for the next command.
SHELL_ONLY = ("source", "cd")


def _ids(page: Path) -> str:
    return page.name


def _command_blocks(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.is_commands]


def _unmarked(page: Path) -> list[Block]:
    return [block for block in _command_blocks(page) if block.needs is None]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the data that pages speak of: DIR, cells, street, photos, and images to predict."""
    monkeypatch.chdir(tmp_path)
    _write_mnist(tmp_path / "DIR")
    write_binary10(tmp_path / "DIR")
    write_isbi(tmp_path / "DIR")
    _write_cells(tmp_path / "cells")
    _write_cells(tmp_path / "new-cells")
    _write_cells(tmp_path / "street", names=("road", "car", "unlabelled"))
    write_images(tmp_path / "photos", {"cat": 40, "dog": 40})
    for name in ("new-images", "IMAGES"):
        save(tmp_path / name / "new.png", grey(seed=9))
    write_images(tmp_path, {"new-photos": 2})
    return tmp_path


def _write_mnist(folder: Path) -> None:
    folder.mkdir()
    generator = np.random.default_rng(0)
    for split, count in (("train", 64), ("t10k", 16)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        parts = {
            f"{split}-images-idx3-ubyte.gz": struct.pack(">4i", 2051, *images.shape) + images.tobytes(),
            f"{split}-labels-idx1-ubyte.gz": struct.pack(">2i", 2049, count) + labels.tobytes(),
        }
        for name, content in parts.items():
            (folder / name).write_bytes(gzip.compress(content))


def _write_cells(folder: Path, *, names: tuple[str, ...] = ("background", "nucleus")) -> None:
    for number in range(10):
        save(folder / "images" / f"{number}.png", grey(32, 32, seed=number))
        save(folder / "masks" / f"{number}.png", classes(len(names), 32, 32, seed=number))
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in names))


def _made_small(words: list[str]) -> list[str]:
    """The command with small settings in the place of its own, and those that it does not have."""
    missing = {} if words[:2] == ["bench", "compare"] else dict(SMALL.get(words[0], {}))
    if words[:2] == ["bench", "suite"]:
        del missing["--steps"]  # A case ends after --seconds.
    if words[0] == "train" and not {"--config", "--dataset"} & set(words):
        missing["--limit-train-samples"] = "8"  # the U-Net of the demonstration, the slowest of all
    small = list(words)
    for option in [option for option in missing if option in small]:
        small[small.index(option) + 1] = missing.pop(option)
    return [*small, *(f"{option}={value}" for option, value in missing.items())]


def _run(words: list[str], *, place: str) -> None:
    if words[0] == "make":
        for target in words[1:]:
            _run_target(target, place=place)
    elif words[0] == "drivetrain":
        assert main(_made_small(words[1:])) == 0, f"{place}: {shlex.join(words)}"
    elif words[0] not in SHELL_ONLY:
        pytest.fail(
            f"{place}: this test cannot run `{shlex.join(words)}`; write what the block needs directly above "
            "it, for example `<!-- needs: an accelerator -->`."
        )


def _write_files(page: Path, *, folder: Path) -> None:
    """Writes the Python examples that begin with the name of a file, such as `# my_models.py`."""
    for block in blocks_of(page):
        named = re.match(r"# (\w+\.py)\n", block.text)
        if block.language == "python" and named:
            (folder / named.group(1)).write_text(block.text)


def _run_target(target: str, *, place: str) -> None:
    """Runs what a target of the Makefile gives to `drivetrain`; other lines set up an environment."""
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(rf"^{re.escape(target)}:[^\n]*\n((?:\t[^\n]*\n)*)", makefile, re.MULTILINE)
    assert found is not None, f"{place}: the Makefile has no target {target}"
    for line in found.group(1).splitlines():
        words = shlex.split(line)
        if words[0] == "$(BIN)/drivetrain":
            _run(["drivetrain", *words[1:]], place=place)


def _parse_only(words: list[str], *, place: str) -> None:
    """Parses the options of a command that is not run; a launcher may stand before it."""
    if "-m" in words and words[words.index("-m") + 1] == "drivetrain":
        words = words[words.index("-m") + 1 :]
    if words[0] == "drivetrain":
        name, *arguments = words[1:]
        assert name in COMMANDS, f"{place}: there is no command {name}"
        parser = OneSentenceParser(prog=name)
        import_module(COMMANDS[name].module).add_arguments(parser)
        parser.parse_args(normalise_argv(arguments))
    for word in words:
        if word.startswith("benchmarks/") and word.endswith(".py"):
            assert (ROOT / word).is_file(), f"{place}: there is no {word}"


@pytest.mark.usefixtures("no_pictures", "one_thread")
@pytest.mark.parametrize("page", [page for page in pages() if _unmarked(page)], ids=_ids)
def test_the_commands_of_a_page_work_from_top_to_bottom(page: Path, desk: Path) -> None:
    _write_files(page, folder=desk)
    for block in _unmarked(page):
        for words in block.commands():
            _run(words, place=block.place)


@pytest.mark.parametrize("page", pages(), ids=_ids)
def test_the_options_of_marked_commands_exist(page: Path) -> None:
    for block in _command_blocks(page):
        if block.needs is not None:
            for words in block.commands():
                _parse_only(words, place=block.place)


@pytest.mark.parametrize("page", pages(), ids=_ids)
def test_no_command_hides_from_these_tests(page: Path) -> None:
    """In a block of another language, or in one that is made by indentation."""
    hidden = re.compile(r"^\s*(drivetrain [a-z]|python (-m|\w+/)|torchrun |srun )")
    other = [block for block in blocks_of(page) if not block.is_commands]
    assert [block.place for block in other if any(map(hidden.match, block.text.splitlines()))] == []
    indented = [line for line in outside_of_fences(page) if line.startswith("    ")]
    assert [line for line in indented if hidden.match(line)] == []


@pytest.mark.parametrize("page", pages(), ids=_ids)
def test_python_examples_are_python(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "python":
            compile(block.text, block.place, "exec")


def test_a_block_without_a_mark_that_cannot_be_run_fails() -> None:
    page = ROOT / "docs" / "invented.md"
    text = "Words.\n\n```\nnvidia-smi\n```\n\n<!-- needs: an accelerator -->\n```sh\nnvidia-smi  # all\n```\n"
    bare, marked = blocks_of(page, text)
    assert (bare.needs, marked.needs) == (None, "an accelerator")
    assert (bare.place, marked.commands()) == ("docs/invented.md:3", [["nvidia-smi"]])
    with pytest.raises(pytest.fail.Exception, match=r"docs/invented\.md:3.*needs: an accelerator"):
        _run(bare.commands()[0], place=bare.place)


def test_a_visible_mark_counts_too() -> None:
    text = "Needs: MNIST in `DIR`\n\n```\ndrivetrain train\n```\n"
    (block,) = blocks_of(ROOT / "docs" / "invented.md", text)
    assert block.needs == "MNIST in `DIR`"


def test_the_ladder_has_its_rungs() -> None:
    kinds = [words[1] for block in _unmarked(LADDER) for words in block.commands()]
    assert kinds == ["train", "plan", "train", "plan", "train", "verify"]


@pytest.mark.parametrize("page", LINKED, ids=_ids)
def test_links_lead_to_files(page: Path) -> None:
    assert [target for target in links_of(page) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", LINKED, ids=_ids)
def test_the_python_files_that_a_page_names_exist(page: Path) -> None:
    folders = (ROOT, ROOT / "src" / "drivetrain")
    names = source_files_of(page)
    assert [name for name in names if not any((folder / name).is_file() for folder in folders)] == []


def _rows_below(page: Path, heading: str) -> list[str]:
    table = page.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][2:]


def _measured_rows() -> list[str]:
    return _rows_below(ROOT / "docs" / "results.md", "Measured")


def test_the_readme_is_short_and_has_five_headline_figures() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 6000
    assert len(_rows_below(ROOT / "README.md", "Headline figures")) == 5


def test_every_figure_names_the_file_that_holds_it() -> None:
    rows = [*_measured_rows(), *_rows_below(ROOT / "README.md", "Headline figures")]
    assert len(rows) > 10
    for row in rows:
        files = re.findall(r"\]\((?:\.\./)?(benchmarks/results/[^)]+)\)", row)
        assert files, row
        for file in files:
            assert (ROOT / file).is_file(), file


def test_nothing_is_measured_twice() -> None:
    subjects = [row.split(" | ")[0] for row in _measured_rows()]
    assert len(set(subjects)) == len(subjects)
    steps = [re.findall(r"`(\w+)` (?:\(|at )(\d+)[^`)]*?batch (\d+)", subject) for subject in subjects]
    found = [step for part in steps for step in part]
    assert len(set(found)) == len(found)
