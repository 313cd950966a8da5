"""Columns that fit a width: cells are cut first, then the highest rank is left out."""

from drivetrain.monitor.layout import LiveColumn, laid_out

COLUMNS = [
    LiveColumn(title="on", cells=["a", "b"]),
    LiveColumn(title="run", cells=["a-long-name", "x"], rank=1, least=6),
    LiveColumn(title="no", cells=["1", "22"], rank=2, side="right"),
    LiveColumn(title="empty", cells=["", ""]),
]


def test_a_column_without_a_value_is_left_out() -> None:
    assert laid_out(COLUMNS, width=80) == [
        "on  run          no",
        "a   a-long-name   1",
        "b   x            22",
    ]


def test_cells_are_cut_before_columns_are_left_out() -> None:
    assert laid_out(COLUMNS, width=14) == ["on  run     no", "a   a-lo..   1", "b   x       22"]
    assert laid_out(COLUMNS, width=13) == ["on  run", "a   a-long-..", "b   x"]
    assert laid_out(COLUMNS, width=5) == ["on", "a", "b"]


def test_no_control_code_reaches_the_terminal() -> None:
    assert laid_out([LiveColumn(title="run", cells=["a\x1b[2Jb\nc"])], width=80)[1] == "a?[2Jb?c"
