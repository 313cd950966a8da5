"""Arrays become images, rows of a table or signals, by their dimensions and `--input-kind`."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, TensorDataset

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import SubsetSource, input_kind_of, require_finite_fetch
from drivetrain.data.sources.arrays import as_source, spec_of, splits_of
from drivetrain.data.sources.given_samples import read_samples, scale_warning
from drivetrain.recipe.params import InputChoice
from tests.number_data import CHANNELS, FEATURES, LENGTH, as_tensor, signals, table

ROWS, LABELS = table()
WAVES, _ = signals()
EMPTY = ROWS[:0]


class Frame:
    """As much of a data frame as is used, because pandas need not be there."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values
        self.columns = [f"c{index}" for index in range(values.shape[1])]

    def to_numpy(self) -> NDArray[Any]:
        return self.values

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape


class Rows(Dataset[Any]):
    def __init__(self, values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return self.values[index], int(LABELS[index])


def _fetched(data: Any, *, choice: InputChoice = "auto") -> NDArray[Any]:
    source = as_source(data, choice=choice)
    samples, labels = source.fetch(np.arange(len(source), dtype=np.int64))
    assert (labels == LABELS[: len(labels)]).all()
    return samples


@pytest.mark.parametrize(
    "values",
    [
        ROWS,
        ROWS.astype(np.float32),
        torch.from_numpy(ROWS),
        Frame(ROWS),
        Frame(ROWS.astype(object)),
    ],
)
def test_two_dimensions_are_a_table_in_float32(values: Any) -> None:
    samples = _fetched((values, LABELS))
    assert samples.dtype == np.float32
    assert np.array_equal(samples[:, 0, 0], ROWS.astype(np.float32))
    spec = spec_of(as_source((values, LABELS)))
    assert (spec.input_kind, spec.input_words) == ("table", f"rows of {FEATURES} features")


@pytest.mark.parametrize("values", [ROWS, torch.from_numpy(ROWS)])
def test_a_data_set_of_rows_is_a_table(values: Any) -> None:
    source = as_source(Rows(values))
    assert input_kind_of(SubsetSource(source, np.arange(3))) == "table"
    assert np.array_equal(_fetched(Rows(values)), _fetched((ROWS, LABELS)))
    tensors = TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(LABELS))
    assert np.array_equal(_fetched(tensors), _fetched((ROWS, LABELS)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.bool_])
def test_whole_numbers_of_a_table_are_not_scaled(dtype: type) -> None:
    values: NDArray[Any] = np.arange(len(LABELS) * 3).reshape(-1, 3).astype(dtype)
    samples = _fetched((values, LABELS))
    assert samples.dtype == np.float32
    assert np.array_equal(samples[:, 0, 0], values.astype(np.float32))


def test_signals_have_channels_last_in_numpy_and_first_in_tensors() -> None:
    by_numpy = _fetched((WAVES, LABELS), choice="signal")
    assert by_numpy.shape == (len(LABELS), 1, LENGTH, CHANNELS)
    assert np.array_equal(by_numpy, _fetched((as_tensor(WAVES), LABELS), choice="signal"))
    assert np.array_equal(by_numpy, _fetched(Rows(WAVES), choice="signal"))
    spec = spec_of(as_source((WAVES, LABELS), choice="signal"))
    assert (spec.input_kind, spec.input_words) == ("signal", "signals of 2 channels with 24 values each")


def test_two_dimensions_are_signals_of_one_channel_if_asked() -> None:
    assert _fetched((ROWS, LABELS), choice="signal").shape == (len(LABELS), 1, FEATURES, 1)


def test_three_dimensions_stay_grey_images() -> None:
    spec = spec_of(as_source((WAVES, LABELS)))
    assert (spec.input_kind, spec.height, spec.width, spec.channels) == ("image", LENGTH, CHANNELS, 1)


def _with(value: object, *, column: int = 2) -> NDArray[Any]:
    values = ROWS.astype(object)
    values[7, column] = value
    return values


@pytest.mark.parametrize(
    ("values", "choice", "said"),
    [
        (_with("red"), "auto", "Row 7 of the table contains red in column 2, which is not a number"),
        (_with(None), "auto", "Row 7 of the table contains None in column 2"),
        (Frame(_with("red")), "auto", r"in column 2 \(c2\), which is not a number"),
        (_with(np.nan), "auto", "Row 7 of the table contains a value in column 2 that is not finite"),
        (_with(1e300), "auto", "Row 7 of the table contains a value in column 2 that is not finite"),
        (ROWS.astype(str), "auto", "The table contains text"),
        (ROWS.astype(complex), "auto", "The table contains complex128"),
        (ROWS[:, 0], "auto", r"shape \(48,\).*values\[:, None\] for a single feature"),
        (ROWS[:, :0], "auto", r"shape \(48, 0\), without any values"),
        (EMPTY, "auto", "no samples"),
        (ROWS[:9], "auto", "9 rows but 48 labels; each row needs one label"),
        (ROWS, "image", r"\(samples, height, width\)"),
        (WAVES, "table", r"--input-kind table needs.*values.reshape\(len\(values\), -1\)"),
        (WAVES[..., None], "signal", r"--input-kind signal needs.*\(samples, length, channels\)"),
        (np.where(WAVES > 3, np.inf, WAVES), "signal", "The signal of sample .* values that are not finite"),
    ],
)
def test_what_is_no_table_and_no_signal_is_said(values: Any, choice: InputChoice, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        as_source((values, LABELS[: 0 if values is EMPTY else None]), choice=choice)


def test_a_data_set_names_the_row_that_is_wrong() -> None:
    source = as_source(Rows(_with(np.inf).astype(np.float64)))
    indices = np.array([3, 7])
    with pytest.raises(BadInputError, match="Row 7 of the table contains a value in column 2"):
        require_finite_fetch(source.fetch(indices)[0], source=source, indices=indices)
    shorter = as_source(Rows([*ROWS[:4], ROWS[4, :3], *ROWS[5:]]))
    with pytest.raises(BadInputError, match="Sample 4 is a row of 3 features, but sample 0 is of 5 features"):
        shorter.fetch(np.array([4]))


def test_validation_data_of_another_kind_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"validation data are rows of 3 features.*rows of 5 features"):
        splits_of((ROWS, LABELS), (ROWS[:, :3], LABELS))


def test_pixels_are_not_spoken_of() -> None:
    assert splits_of((ROWS * 1000, LABELS)).warnings == []
    assert splits_of((WAVES * 1000, LABELS), choice="signal").warnings == []
    assert len(splits_of((WAVES * 1000, LABELS)).warnings) == 1
    turned = splits_of((WAVES.transpose(0, 2, 1), LABELS), choice="signal").warnings
    assert ["more channels (24) than values (2)" in warning for warning in turned] == [True]


def test_columns_of_very_different_scale_are_said() -> None:
    values = ROWS.copy()
    assert scale_warning(as_source((values, LABELS))) is None
    values[:, 3] *= 1000
    said = scale_warning(as_source((values, LABELS)))
    assert said is not None
    assert "column 3 has values of about" in said
    values[:, 3] = 0
    assert scale_warning(as_source((values, LABELS))) is None


def test_samples_are_contiguous() -> None:
    for values, choice in ((np.asfortranarray(ROWS), "auto"), (as_tensor(WAVES), "signal")):
        assert read_samples(values, choice=choice)[0].flags.c_contiguous  # type: ignore[arg-type]
