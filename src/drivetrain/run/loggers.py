"""Where events go: metrics.jsonl, the person's screen, TensorBoard where asked for."""

from typing import Any

from drivetrain.run.directory import RunDirectory
from drivetrain.run.metrics import MetricsLog
from drivetrain.run.reporter import Reporter


class EventLog:
    """Hands every event to all its readers."""

    def __init__(
        self, directory: RunDirectory, *, reporter: Reporter, total_updates: int, first_update: int
    ) -> None:
        self.metrics = MetricsLog(directory.metrics)
        self._reporter = reporter
        self._total_updates = total_updates
        self._board: TensorBoardLog | None = None
        self._first_update = first_update

    def add_tensorboard(self, directory: RunDirectory) -> None:
        """Also writes TensorBoard logs; a continued run replaces what lies after its checkpoint."""
        self._board = TensorBoardLog(directory, first_update=self._first_update)

    def training(self, update: int, **values: Any) -> None:
        self.metrics.append("train", update=update, **values)
        self._say(update, values, accuracy_name="training_accuracy")
        self._draw("train", update, values)

    def validation(self, update: int, **values: Any) -> None:
        self.metrics.append("validation", update=update, **values)
        self._say(update, values, accuracy_name="validation_accuracy", loss_name="validation_loss")
        self._draw("validation", update, values)

    def summary(self, update: int, **values: Any) -> None:
        self.metrics.append("summary", update=update, **values)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()

    def _say(
        self, update: int, values: dict[str, Any], *, accuracy_name: str, loss_name: str = "loss"
    ) -> None:
        parts = [f"update {update}/{self._total_updates}", f"epoch {values['epoch']}"]
        parts += [f"{loss_name}: {values['loss']:.4f}", f"{accuracy_name}: {values['accuracy']:.4f}"]
        if "images_per_second" in values:
            parts.append(f"images/s: {values['images_per_second']:.0f}")
        self._reporter.say("  ".join(parts))

    def _draw(self, group: str, update: int, values: dict[str, Any]) -> None:
        if self._board is not None:
            self._board.write(group, update, values)


class TensorBoardLog:
    """Scalars per update under the run's own folder."""

    def __init__(self, directory: RunDirectory, *, first_update: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory.tensorboard), purge_step=first_update + 1)

    def write(self, group: str, update: int, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{group}/{name}", value, update)

    def close(self) -> None:
        self._writer.close()
