"""The certificate for a person: a table, and one line that says what it comes to."""

from rich.console import Console
from rich.table import Table

from drivetrain.console.tables import text_table
from drivetrain.verify.certificate import Certificate
from drivetrain.verify.control import Control
from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import CONTROL_FACTOR, DtypeName
from drivetrain.verify.points import MOST_POINTS, NEEDED_POINTS, Row

__all__ = ["closing_line", "print_certificate"]

_HEAD = ("layout", "type", "compared with", "worst gradient", "error", "loss", "batch norm", "verdict")
_NOTHING = "-"
_CONTROL = "negative control"
_DIFFERENT, _MISSED, _NOT_POSSIBLE = "DIFFERENT", "MISSED", "not possible"


def print_certificate(certificate: Certificate, *, console: Console) -> None:
    """Writes the table, plain where it goes to a file, and the line that closes it."""
    rows = _rows(certificate)
    if console.is_terminal:
        console.print(_rich_table(rows), highlight=False)
    else:
        console.print("\n".join(text_table([_HEAD, *rows])), highlight=False, markup=False, soft_wrap=True)
    console.print(closing_line(certificate), highlight=False, markup=False, soft_wrap=True)


def closing_line(certificate: Certificate) -> str:
    """What the certificate comes to."""
    wrong = [row for row in certificate.rows if not row.ok]
    if wrong:
        return f"not certified: {_described(wrong[0])}{_hint(certificate)}"
    missed = [control for control in certificate.controls if not control.is_caught]
    if missed:
        return (
            f"not certified: with {missed[0].layout.name} in {missed[0].dtype} a gradient times "
            f"{CONTROL_FACTOR} was not noticed, so that the comparison proves nothing (are all gradients 0?)"
        )
    if not certificate.rows:
        return "nothing to certify: every layout is different by definition"
    names = {row.layout.name for row in certificate.rows}
    verb = "layout computes" if len(names) == 1 else "layouts compute"
    different = len(certificate.different_by_definition)
    other = f"; {different} different by definition" if different else ""
    if certificate.not_possible:
        other += f"; {len(certificate.not_possible)} {_NOT_POSSIBLE}"
    return (
        f"certified: {len(names)} {verb} what one process computes of {certificate.subject.recipe.model}, "
        f"in {' and '.join(certificate.dtypes)}{_exceptions(certificate)}{other}"
    )


def _exceptions(certificate: Certificate) -> str:
    """Says of layouts that are equal at most points what they are at the others."""
    partly = [row for row in certificate.rows if row.points_equal < row.points_tried]
    if not partly:
        return ""
    described = ", ".join(f"{row.layout.name} {row.points_equal} of {row.points_tried}" for row in partly)
    loss, gradient = max(row.loss for row in partly), max(row.gradients.error for row in partly)
    return (
        f"; not at every point, as rounding moves values past the kinks of the model (points equal: "
        f"{described}; worst gradient {gradient:.1e}, loss {loss:.1e})"
    )


def _rows(certificate: Certificate) -> list[tuple[str, ...]]:
    rows = [_row_of(row) for row in certificate.rows]
    for layout in certificate.different_by_definition:
        normalises = f"normalises {layout.normalised_set} samples together"
        rows.append((layout.name, "", normalises, *[_NOTHING] * 4, "different by definition"))
    for one in certificate.not_possible:
        rows.append((one.layout.name, *[_NOTHING] * 6, _NOT_POSSIBLE))
    controls = {control.dtype: control for control in certificate.controls}
    if certificate.rows:
        rows += [_control_row(dtype, controls.get(dtype)) for dtype in certificate.dtypes]
    return rows


def _row_of(row: Row) -> tuple[str, ...]:
    return (
        row.layout.name,
        row.dtype,
        _reference_words(row.reference),
        row.gradients.name,
        f"{row.gradients.error:.1e}",
        f"{row.loss:.1e}",
        f"{row.statistics.error:.1e}" if row.statistics is not None else _NOTHING,
        _verdict(row),
    )


def _control_row(dtype: DtypeName, control: Control | None) -> tuple[str, ...]:
    if control is None:
        return (_CONTROL, dtype, "not run: no layout is equal", *[_NOTHING] * 5)
    return (
        control.layout.name,
        dtype,
        f"{_CONTROL}: one gradient x {CONTROL_FACTOR}",
        control.gradient,
        f"{control.error:.1e}",
        *[_NOTHING] * 2,
        "caught" if control.is_caught else _MISSED,
    )


def _verdict(row: Row) -> str:
    word = "equal" if row.ok else _DIFFERENT
    return word if row.points_tried == 1 else f"{word}: {row.points_equal} of {row.points_tried} points"


def _reference_words(reference: Layout) -> str:
    norm = ", stable norm" if reference.stable_norm else ""
    return f"one process, micro-batch {reference.micro}{norm}"


def _rich_table(rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _HEAD:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row, style="bold red" if row[-1].startswith((_DIFFERENT, _MISSED)) else None)
    return table


def _described(row: Row) -> str:
    said = f"{row.layout.name} in {row.dtype}: {'; '.join(row.failures)}"
    if row.points_tried == 1:
        return said
    return (
        f"{said}; {row.points_equal} of {row.points_tried} points are equal, "
        f"{NEEDED_POINTS[row.dtype]} of {MOST_POINTS[row.dtype]} would do"
    )


def _hint(certificate: Certificate) -> str:
    if certificate.draws_from_torch:
        return "; the model draws from torch's own generator, whose numbers belong to the micro-batch"
    wrong = {row.dtype for row in certificate.rows if not row.ok}
    if wrong == {"float32"} and "float64" in certificate.dtypes:
        return "; in float64 all are equal, so that it is rounding which this model makes much of"
    return ""
