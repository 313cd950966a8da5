"""A network as named layers, each with the names of the layers whose outputs it reads."""

from torch import Tensor, nn

from drivetrain.models.zoo.initialise import InitialisedModel

__all__ = ["IMAGES", "LayerGraph"]

# The name under which layers read the network's input.
IMAGES = "images"


class LayerGraph(InitialisedModel):
    """Base class of networks that add their layers one by one in the order in which they run.

    The last layer returns the logits. An output is forgotten as soon as its last reader has run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[tuple[str, tuple[str, ...]]] = []
        self._last_reader: dict[str, str] = {}

    def add(self, name: str, layer: nn.Module, *sources: str) -> str:
        """Appends a layer that reads `sources`, or else the layer before it; returns its name."""
        read = sources or (self.last_layer,)
        self.add_module(name, layer)
        self._steps.append((name, read))
        self._last_reader |= dict.fromkeys(read, name)
        return name

    @property
    def last_layer(self) -> str:
        """The layer that was added last; the images before the first."""
        return self._steps[-1][0] if self._steps else IMAGES

    def forward(self, images: Tensor) -> Tensor:
        values = {IMAGES: images}
        for name, sources in self._steps:
            values[name] = getattr(self, name)(*(values[source] for source in sources))
            for source in dict.fromkeys(sources):
                if self._last_reader[source] == name:
                    del values[source]
        return values[self.last_layer]
