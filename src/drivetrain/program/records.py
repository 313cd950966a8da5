"""What every update leaves behind, kept on the device until a host event asks for it."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class UpdateRecords:
    """One number per update and quantity; NaN where an update has not run."""

    def __init__(
        self, total_updates: int, *, score: str, device: torch.device, dtype: torch.dtype = torch.float64
    ) -> None:
        self.columns: dict[str, Tensor] = {
            name: torch.full((total_updates,), torch.nan, dtype=dtype, device=device)
            for name in ("loss", score, "learning_rate")
        }

    def write(self, update: int, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self.columns[name][update] = value

    def read(self, name: str, first: int, last: int) -> NDArray[np.float64]:
        """The values of updates first..last-1; the one place where the host waits for them."""
        values: NDArray[np.float64] = self.columns[name][first:last].cpu().numpy()
        return values

    def restore(self, saved: Mapping[str, NDArray[np.float64]], *, updates: int) -> None:
        """Takes over the first `updates` values of an earlier part of the run."""
        for name, column in self.columns.items():
            if name in saved:
                length = min(updates, len(saved[name]), len(column))
                column[:length] = torch.from_numpy(saved[name][:length])
