"""The records of updates (loss, score, learning rate), kept on the device until a host event reads them."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class UpdateRecords:
    """One number per update and quantity; NaN where an update has not run."""

    def __init__(
        self,
        total_updates: int,
        *,
        score: str,
        device: torch.device,
        dtype: torch.dtype = torch.float64,
        others: Sequence[str] = (),
    ) -> None:
        names = ("loss", score, "learning_rate", *others)
        self._table = torch.full((len(names), total_updates), torch.nan, dtype=dtype, device=device)
        self.columns: dict[str, Tensor] = dict(zip(names, self._table.unbind(0), strict=True))

    def __len__(self) -> int:
        return self._table.shape[1]

    def write(self, update: Tensor, values: Mapping[str, Tensor]) -> None:
        """Records the values of an update; its number is a tensor on the device, so nothing synchronises."""
        # Concatenation also promotes values of several types to the widest one.
        numbers = torch.cat([values[name].detach().view(1) for name in self.columns])
        self._table.index_copy_(1, update.view(1), numbers.to(self._table.dtype).view(-1, 1))

    def read(self, name: str, first: int, last: int) -> NDArray[np.float64]:
        """The values of updates first..last-1; the only place where the host waits for them."""
        values: NDArray[np.float64] = self.columns[name][first:last].cpu().numpy()
        return values

    def restore(self, saved: Mapping[str, NDArray[np.float64]], *, updates: int) -> None:
        """Restores the first `updates` values from an earlier part of the run."""
        for name, column in self.columns.items():
            if name in saved:
                length = min(updates, len(saved[name]), len(column))
                column[:length] = torch.from_numpy(saved[name][:length])
