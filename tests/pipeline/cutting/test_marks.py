"""Marks: nested, of one thread, gone with the `with`, carried over to a replacement."""

import threading

import pytest
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.cutting.marks import assign_stages, has_marks, mark_of, stage


def test_the_innermost_with_counts_and_marks_end_with_it() -> None:
    before = nn.Module.__init__
    with stage(0):
        outer = nn.Sequential(nn.ReLU())
        with stage(1):
            inner = nn.ReLU()
        after = nn.ReLU()
    outside = nn.ReLU()
    assert [mark_of(module) for module in (outer, outer[0], inner, after, outside)] == [0, 0, 1, 0, None]
    assert nn.Module.__init__ is before
    assert has_marks(outer)
    assert not has_marks(outside)


def test_marks_survive_an_error_no_longer_than_it() -> None:
    before = nn.Module.__init__
    with pytest.raises(KeyError), stage(3):
        raise KeyError
    assert nn.Module.__init__ is before
    assert mark_of(nn.ReLU()) is None


def test_another_thread_builds_unmarked_modules() -> None:
    built: list[nn.Module] = []
    with stage(2):
        thread = threading.Thread(target=lambda: built.append(nn.ReLU()))
        thread.start()
        thread.join()
    assert mark_of(built[0]) is None


def test_assignment_by_module_and_by_path_overrides_marks_inside() -> None:
    with stage(5):
        inner = nn.Sequential(nn.ReLU(), nn.Sigmoid())
        model = nn.Sequential(inner, nn.ReLU())
    assign_stages({inner: 1}, model)
    assert [mark_of(module) for module in (model, inner, inner[0], model[1])] == [5, 1, None, 5]
    assign_stages({"0.1": 2, "0": 0}, model)
    assert [mark_of(module) for module in (inner, inner[0], inner[1])] == [0, None, 2]


def test_what_cannot_be_marked() -> None:
    model = nn.Sequential(nn.ReLU())
    with pytest.raises(BadInputError, match="has no module 00"):
        assign_stages({"00": 1}, model)
    with pytest.raises(BadInputError, match="the Sigmoid given is not a module of the model"):
        assign_stages({nn.Sigmoid(): 1}, model)
    for index in (-1, True, "1"):
        with pytest.raises(BadInputError, match="whole number from 0 on"), stage(index):  # type: ignore[arg-type]
            pass
    assert not has_marks(model)
