"""What differs between tasks is asked of the task: elsewhere nothing is compared with the name of one."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import drivetrain
from drivetrain.catalogue.tasks import TaskName

SOURCE = Path(drivetrain.__file__).parent
NAMES = frozenset(get_args(TaskName))
OF_ONE_TASK = {
    "ClassificationTask",
    "ClassificationEvaluation",
    "SegmentationTask",
    "SegmentationEvaluation",
    "DensePreprocess",
}
HOMES = ("catalogue", "tasks")
# Code above tasks/ that does something else for each task: one table each, with an entry for every task.
TABLES = {
    "inference/predict/predict.py": "what is written for image files",
    "run/summary/finish.py": "what is drawn of the validation",
}
NARROWED = {
    "assembly/training_feed.py": "images change with their masks where the preparation has both",
    "data/augment/chain.py": "asserts what its own builder was given",
    "findings/labels.py": "takes the guesses of a measured classifier, or the scores of each mask",
    "findings/record.py": "takes the counts that each kind of evaluation has measured",
    "inference/evaluate/evaluation_files.py": "the files that each kind of evaluation leaves",
    "passes/model_step.py": "asserts that only whole labels are mixed",
    "run/summary/mask_pictures.py": "takes the scores of a measured segmentation",
    "run/summary/pictures.py": "takes the guesses of a measured classifier",
}


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in NAMES


def _names_in(node: ast.expr) -> bool:
    """Whether an operand is the name of a task, or a collection with one in it."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return any(map(_is_name, parts))


def _is_branch(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(map(_names_in, [node.left, *node.comparators]))
    if isinstance(node, ast.MatchValue):
        return _is_name(node.value)
    return isinstance(node, ast.Subscript) and _is_name(node.slice)


def _keys(node: ast.AST) -> frozenset[str]:
    """The tasks that a dict has entries for."""
    keys = node.keys if isinstance(node, ast.Dict) else []
    values = [key.value for key in keys if isinstance(key, ast.Constant)]
    return frozenset(value for value in values if isinstance(value, str) and value in NAMES)


def _is_narrowing(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"):
        return False
    return any(isinstance(part, ast.Name) and part.id in OF_ONE_TASK for part in ast.walk(node.args[1]))


def branches(text: str) -> list[str]:
    """What a source text decides by the name of a task, or by a class that stands for one."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if _is_branch(node):
            found.append("comparison")
        elif _keys(node):
            found.append("table" if _keys(node) == NAMES else "table with gaps")
        elif _is_narrowing(node):
            found.append("isinstance")
    return found


def _files() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if place.parts[0] not in HOMES:
            yield place.as_posix(), path.read_text(encoding="utf-8")


def test_no_file_compares_a_task_with_a_name() -> None:
    found = {place: branches(text) for place, text in _files()}
    assert len(found) > 200
    allowed = {**dict.fromkeys(TABLES, "table"), **dict.fromkeys(NARROWED, "isinstance")}
    odd = {place: kinds for place, kinds in found.items() if set(kinds) - {allowed.get(place)}}
    assert odd == {}


def test_every_exception_is_one_still() -> None:
    assert all(branches((SOURCE / place).read_text(encoding="utf-8")) == ["table"] for place in TABLES)
    assert all("isinstance" in branches((SOURCE / place).read_text(encoding="utf-8")) for place in NARROWED)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("spec.task == 'segmentation'", "comparison"),
        ("'classification' != spec.task", "comparison"),
        ("spec.task in ('segmentation', None)", "comparison"),
        ("'segmentation' in (dataset_task(a), model_task(b))", "comparison"),
        ("match task:\n    case 'segmentation':\n        pass", "comparison"),
        ("sides['segmentation']", "comparison"),
        ("{'classification': 64, 'segmentation': 32}[task]", "table"),
        ("{'segmentation': 32}.get(task)", "table with gaps"),
        ("isinstance(task, SegmentationTask)", "isinstance"),
        (
            "isinstance(found, str | tasks) or isinstance(found, ClassificationEvaluation | None)",
            "isinstance",
        ),
    ],
)
def test_a_branch_would_be_found(text: str, kind: str) -> None:
    assert branches(text) == [kind]


@pytest.mark.parametrize(
    "text",
    [
        "DataSpec(task='segmentation')",
        "folders = ('masks', 'segmentation')",
        "task_info(spec.task).has_dense_labels",
        "isinstance(source, SubsetSource)",
        "precision == 'auto'",
    ],
)
def test_what_is_no_branch_is_left_alone(text: str) -> None:
    assert branches(text) == []
