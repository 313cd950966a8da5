"""Prints a certificate as a table, followed by one line with the overall result."""

from rich.console import Console
from rich.table import Table

from drivetrain.console.tables import text_table
from drivetrain.verify.certificate import Certificate
from drivetrain.verify.control import Control
from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import CONTROL_FACTOR, DtypeName
from drivetrain.verify.points import MOST_POINTS, NEEDED_POINTS, Row

__all__ = ["closing_line", "print_certificate"]

_HEAD = (
    "layout",
    "type",
    "compared with",
    "worst gradient",
    "error",
    "loss",
    "batch norm",
    "bits",
    "verdict",
)
_NOTHING = "-"
_CONTROL = "negative control"
_DIFFERENT, _MISSED, _NOT_POSSIBLE = "DIFFERENT", "MISSED", "not possible"
_OTHER_SETS = "batch norm sees a different set of samples"
_OTHER_DRAWS = "the model draws random numbers per micro-batch"
_OTHER_MICRO = "no other layout of one process has its micro-batches"
_OTHER_SIZE = "other micro-batches"


def print_certificate(certificate: Certificate, *, console: Console) -> None:
    """Prints the table (as plain text when the output is not a terminal) and the closing line."""
    rows = _rows(certificate)
    if console.is_terminal:
        console.print(_rich_table(rows), highlight=False)
    else:
        console.print("\n".join(text_table([_HEAD, *rows])), highlight=False, markup=False, soft_wrap=True)
    console.print(closing_line(certificate), highlight=False, markup=False, soft_wrap=True)


def closing_line(certificate: Certificate) -> str:
    """The overall result in one line."""
    wrong = [row for row in certificate.rows if not row.ok]
    if wrong:
        return f"not certified: {_described(wrong[0])}{_hint(certificate)}"
    missed = [control for control in certificate.controls if not control.is_caught]
    if missed:
        return (
            f"not certified: the negative control failed: {missed[0].layout.name} in {missed[0].dtype} with "
            f"one gradient multiplied by {CONTROL_FACTOR} passed as equal, so the comparison proves nothing "
            "(are all gradients 0?)"
        )
    only_equal = [row for row in certificate.rows if not row.is_identical]
    if only_equal and certificate.requires == "identical":
        return f"not certified: {_bits_in_words(only_equal[0])}"
    if not certificate.rows:
        return f"nothing to certify: no layout is comparable, {_why_not(certificate)} in each"
    names = {row.layout.name for row in certificate.rows}
    verb = "layout computes" if len(names) == 1 else "layouts compute"
    different = len(certificate.different_by_definition)
    other = f"; {different} not comparable: {_why_not(certificate)}" if different else ""
    if certificate.not_possible:
        other += f"; {len(certificate.not_possible)} {_NOT_POSSIBLE}"
    return (
        f"certified: {len(names)} {verb} the same as one process for {certificate.subject.recipe.model}, "
        f"in {_dtypes(certificate)}{_identical(certificate)}{_exceptions(certificate)}{other}"
    )


def _dtypes(certificate: Certificate) -> str:
    """The dtypes of the certificate; `--quick` computes each layout in one of them."""
    measured = {(row.layout.name, row.dtype) for row in certificate.rows}
    names = {name for name, _ in measured}
    is_each_in_all = len(measured) == len(names) * len(certificate.dtypes)
    return (" and " if is_each_in_all else " or ").join(certificate.dtypes)


def _identical(certificate: Certificate) -> str:
    """How many layouts have the same bits as one process, in every dtype in which they were measured."""
    names = {row.layout.name for row in certificate.rows}
    others = {row.layout.name for row in certificate.rows if not row.is_identical}
    number = len(names - others)
    return f"; {f'{number} of them' if others else 'all'} bit for bit" if number else ""


def _bits_in_words(row: Row) -> str:
    """Where a layout that is equal, but has to be identical, first has other bits."""
    bits = row.bits
    return (
        f"{row.layout.name} in {row.dtype} is equal but not identical: {bits.total - bits.same} of "
        f"{bits.total} compared losses and tensors have other bits, first in {bits.in_words}"
    )


def _exceptions(certificate: Certificate) -> str:
    """Names the layouts that are equal for most seeds only, with their worst errors."""
    partly = [row for row in certificate.rows if row.points_equal < row.points_tried]
    if not partly:
        return ""
    described = ", ".join(f"{row.layout.name} {row.points_equal} of {row.points_tried}" for row in partly)
    loss, gradient = max(row.loss for row in partly), max(row.gradients.error for row in partly)
    return (
        "; for some seeds rounding moved a value past a kink of the model, such as 0 for a ReLU (equal "
        f"seeds: {described}; worst gradient {gradient:.1e}, loss {loss:.1e})"
    )


def _rows(certificate: Certificate) -> list[tuple[str, ...]]:
    rows = [_row_of(row) for row in certificate.rows]
    for layout in certificate.different_by_definition:
        why = f"not comparable: {_why_not(certificate)}"
        rows.append((layout.name, "", _sets(certificate, layout), *[_NOTHING] * 5, why))
    for one in certificate.not_possible:
        rows.append((one.layout.name, *[_NOTHING] * 7, _NOT_POSSIBLE))
    controls = {control.dtype: control for control in certificate.controls}
    if certificate.rows:
        rows += [_control_row(dtype, controls.get(dtype)) for dtype in certificate.dtypes]
    return rows


def _why_not(certificate: Certificate) -> str:
    """Why a layout has no reference; a model that draws per micro-batch is compared by their size first."""
    if certificate.subject.draws_per_micro_batch:
        return _OTHER_DRAWS
    return _OTHER_MICRO if certificate.requires == "identical" else _OTHER_SETS


def _sets(certificate: Certificate, layout: Layout) -> str:
    if certificate.compares_same_micro_batches:
        return f"nothing: micro-batches of {layout.micro} samples"
    return f"nothing: batch norm over {layout.normalised_set} samples"


def _row_of(row: Row) -> tuple[str, ...]:
    return (
        row.layout.name,
        row.dtype,
        _reference_words(row.reference),
        row.gradients.name,
        f"{row.gradients.error:.1e}",
        f"{row.loss:.1e}",
        f"{row.statistics.error:.1e}" if row.statistics is not None else _NOTHING,
        _bits(row),
        _verdict(row),
    )


def _control_row(dtype: DtypeName, control: Control | None) -> tuple[str, ...]:
    if control is None:
        return (_CONTROL, dtype, "not run: no layout is equal", *[_NOTHING] * 6)
    return (
        control.layout.name,
        dtype,
        f"{_CONTROL}: one gradient x {CONTROL_FACTOR}",
        control.gradient,
        f"{control.error:.1e}",
        *[_NOTHING] * 3,
        "caught" if control.is_caught else _MISSED,
    )


def _bits(row: Row) -> str:
    """Whether the bits are the same; where they cannot be, the reason instead of a tensor."""
    if row.bits.are_same or row.has_same_micro_batches:
        return row.bits.in_words
    return _OTHER_SIZE


def _verdict(row: Row) -> str:
    word = row.verdict if row.ok else _DIFFERENT
    return word if row.points_tried == 1 else f"{word}: {row.points_equal} of {row.points_tried} seeds"


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
        f"{said}; equal for {row.points_equal} of {row.points_tried} seeds, "
        f"{NEEDED_POINTS[row.dtype]} of {MOST_POINTS[row.dtype]} are needed"
    )


def _hint(certificate: Certificate) -> str:
    if certificate.draws_from_torch:
        return (
            "; the model draws random numbers from torch's global generator, so they change with the size of "
            "the micro-batches"
        )
    wrong = [row for row in certificate.rows if not row.ok]
    exact = {row.layout.name for row in certificate.rows if row.dtype == "float64" and row.ok}
    # With --quick only some layouts are computed in float64.
    if all(row.dtype == "float32" and row.layout.name in exact for row in wrong):
        return "; in float64 all layouts are equal, so the difference is rounding that this model amplifies"
    return ""
