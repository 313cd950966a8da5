"""The certificate for a person: a table, and one line that says what it comes to."""

from rich.console import Console
from rich.table import Table

from drivetrain.run.text_table import text_table
from drivetrain.verify.certificate import Certificate, Row
from drivetrain.verify.compare import CONTROL_FACTOR
from drivetrain.verify.layouts import Layout

__all__ = ["closing_line", "print_certificate"]

_HEAD = ("layout", "type", "compared with", "worst gradient", "error", "loss", "batch norm", "verdict")
_NOTHING = "-"
_DIFFERENT, _MISSED = "DIFFERENT", "MISSED"


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
    wrong = [row for row in certificate.rows if not row.difference.ok]
    if wrong:
        return f"not certified: {_described(wrong[0])}{_hint(certificate)}"
    missed = [dtype for dtype, is_caught in certificate.controls.items() if not is_caught]
    if missed:
        return (
            f"not certified: in {missed[0]} a gradient times {CONTROL_FACTOR} was not noticed, so that the "
            "comparison proves nothing (are all gradients 0?)"
        )
    if not certificate.rows:
        return "nothing to certify: every layout is different by definition"
    names = {row.layout.name for row in certificate.rows}
    verb = "layout computes" if len(names) == 1 else "layouts compute"
    different = len(certificate.different_by_definition)
    other = f"; {different} different by definition" if different else ""
    return (
        f"certified: {len(names)} {verb} what one process computes of {certificate.subject.recipe.model}, "
        f"in {' and '.join(certificate.controls)}{other}"
    )


def _rows(certificate: Certificate) -> list[tuple[str, ...]]:
    rows = [_row_of(row) for row in certificate.rows]
    for layout in certificate.different_by_definition:
        normalises = f"normalises {layout.normalised_set} samples together"
        rows.append((layout.name, "", normalises, *[_NOTHING] * 4, "different by definition"))
    for dtype, is_caught in certificate.controls.items():
        what = f"one gradient x {CONTROL_FACTOR}"
        rows.append(("negative control", dtype, what, *[_NOTHING] * 4, "caught" if is_caught else _MISSED))
    return rows


def _row_of(row: Row) -> tuple[str, ...]:
    found = row.difference
    statistics = found.statistics
    return (
        row.layout.name,
        row.dtype,
        _reference_words(row.reference),
        found.gradients.name,
        f"{found.gradients.error:.1e}",
        f"{found.loss:.1e}",
        f"{statistics.error:.1e}" if statistics is not None else _NOTHING,
        _verdict(row),
    )


def _verdict(row: Row) -> str:
    if not row.difference.ok:
        return _DIFFERENT
    return "equal" if row.points == 1 else f"equal at point {row.points}"


def _reference_words(reference: Layout) -> str:
    return f"one process, micro-batch {reference.micro}"


def _rich_table(rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _HEAD:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row, style="bold red" if row[-1] in (_DIFFERENT, _MISSED) else None)
    return table


def _described(row: Row) -> str:
    return f"{row.layout.name} in {row.dtype}: {'; '.join(row.difference.failures)}"


def _hint(certificate: Certificate) -> str:
    if certificate.draws_from_torch:
        return "; the model draws from torch's own generator, whose numbers belong to the micro-batch"
    wrong = {row.dtype for row in certificate.rows if not row.difference.ok}
    if wrong == {"float32"} and "float64" in certificate.controls:
        return "; in float64 all are equal, so that it is rounding which this model makes much of"
    return ""
