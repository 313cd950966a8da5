"""Tables that fit, without a broken word."""

from drivetrain.console.tables import Column, fits, fitted_table, without_folders

RUN = Column(title="run", cells=["runs/mask-folder-0123456789abcdef", "runs/digits"])
STATUS = Column(title="status", cells=["running, 2 of 5 folds finished", "stopped"])
LOSS = Column(title="loss", cells=["0.1234", "0.5"], rank=1)
SPEED = Column(title="images/s", cells=["12345", "0.43"], rank=2)


def words(lines: list[str]) -> set[str]:
    return {word for line in lines for word in line.split()}


def test_a_wide_screen_has_all_columns_in_a_line_each() -> None:
    lines = fitted_table([RUN, STATUS, LOSS, SPEED], width=120)
    assert len(lines) == 3
    assert lines[0].split() == ["run", "status", "loss", "images/s"]
    assert lines[2].split() == ["runs/digits", "stopped", "0.5", "0.43"]


def test_a_narrow_one_loses_columns_and_wraps_between_words() -> None:
    lines = fitted_table([RUN, STATUS, LOSS, SPEED], width=56)
    assert all(len(line) <= 56 for line in lines)
    assert lines[0].split() == ["run", "status", "loss"]
    every = {
        word
        for column in (RUN, STATUS, LOSS)
        for cell in (column.title, *column.cells)
        for word in cell.split()
    }
    assert words(lines) == every


def test_what_cannot_be_left_out_is_never_broken() -> None:
    lines = fitted_table([RUN, STATUS, LOSS, SPEED], width=20)
    assert "runs/mask-folder-0123456789abcdef" in words(lines)
    assert not fits([RUN, STATUS], width=20)


def test_runs_go_by_their_names_where_these_tell_them_apart() -> None:
    assert without_folders(RUN).cells == ["mask-folder-0123456789abcdef", "digits"]
    alike = Column(title="run", cells=["a/fold-0", "b/fold-0"])
    assert without_folders(alike) == alike
