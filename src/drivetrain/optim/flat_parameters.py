"""All trainable parameters of a model as one flat tensor, and their gradients as another.

The model keeps its own Parameter objects: each becomes a view into the flat tensor, four-dimensional ones in
the memory format of the model. Optimisers, clipping, all-reduces and checks then need a few operations on one
vector. Captured CUDA graphs rely on fixed addresses: replacing `data` or `grad` of a parameter breaks them.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.memory_format import memory_format_of

# Every parameter begins at a multiple of 16 elements: vectorised kernels want aligned addresses.
_ALIGNMENT_ELEMENTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The place of a parameter in the flat tensors; `element` is its place in those of the whole model."""

    name: str
    shape: torch.Size
    start: int
    element: int
    is_channels_last: bool = True

    @property
    def numel(self) -> int:
        return self.shape.numel()

    def view(self, flat: Tensor) -> Tensor:
        """This parameter's part of a flat tensor, in the parameter's shape."""
        part = flat[self.start : self.start + self.numel]
        if len(self.shape) != 4 or not self.is_channels_last:
            return part.view(self.shape)
        outputs, inputs, height, width = self.shape
        return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


class FlatParameters:
    """Owns the memory of a model's trainable parameters and gradients, or of those named in `only`.

    Other parameters stay where they are. All must have the same type. `device` is used if none is left.
    """

    def __init__(
        self, model: nn.Module, *, only: Container[str] | None = None, device: torch.device | None = None
    ) -> None:
        everything = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not everything:
            raise BadInputError("--model has no trainable parameters, so there is nothing to train.")
        dtype = _common_dtype(everything)
        trainable = [(name, p) for name, p in everything if only is None or name in only]
        self.segments = _lay_out(
            trainable,
            places=_places(everything),
            is_channels_last=memory_format_of(model) == torch.channels_last,
        )
        length = _aligned(self.segments[-1].start + self.segments[-1].numel) if trainable else 0
        device = trainable[0][1].device if trainable else device
        self.values = torch.zeros(length, dtype=dtype, device=device)
        self.gradients = torch.zeros_like(self.values)
        self.owners = [parameter for _, parameter in trainable]
        self.gradient_places = [segment.view(self.gradients) for segment in self.segments]
        with torch.no_grad():
            for segment, parameter in zip(self.segments, self.owners, strict=True):
                segment.view(self.values).copy_(parameter)
                parameter.data = segment.view(self.values)
            for parameter, place in zip(self.owners, self.gradient_places, strict=True):
                parameter.grad = place
                if getattr(parameter, "_post_accumulate_grad_hooks", None):
                    # A user's hook may replace `grad`; this one runs after it.
                    parameter.register_post_accumulate_grad_hook(partial(_put_into, place))  # type: ignore[no-untyped-call]

    def named_views(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """The views of all parameters into a flat tensor of this layout, with their names."""
        return ((segment.name, segment.view(flat)) for segment in self.segments)


@torch.no_grad()
def _put_into(place: Tensor, parameter: Tensor) -> None:
    """Makes `grad` the parameter's part of the flat gradient again, with the values it has."""
    if parameter.grad is None:
        place.zero_()
    elif parameter.grad is not place:
        place.copy_(parameter.grad)
    parameter.grad = place


def _common_dtype(parameters: list[tuple[str, nn.Parameter]]) -> torch.dtype:
    name_of = {parameter.dtype: name for name, parameter in parameters}
    if len(name_of) > 1:
        listed = ", ".join(
            f"{name} is {str(dtype).removeprefix('torch.')}" for dtype, name in name_of.items()
        )
        raise BadInputError(
            f"--model mixes parameter types ({listed}); convert all of them to one type, such as float32."
        )
    return parameters[0][1].dtype


def _lay_out(
    parameters: list[tuple[str, nn.Parameter]], *, places: dict[str, int], is_channels_last: bool
) -> list[Segment]:
    starts = _places(parameters)
    return [
        Segment(
            name=name,
            shape=parameter.shape,
            start=starts[name],
            element=places[name],
            is_channels_last=is_channels_last,
        )
        for name, parameter in parameters
    ]


def _places(parameters: list[tuple[str, nn.Parameter]]) -> dict[str, int]:
    """Where each parameter begins in a flat tensor of all of these."""
    places: dict[str, int] = {}
    start = 0
    for name, parameter in parameters:
        places[name] = start
        start = _aligned(start + parameter.numel())
    return places


def _aligned(elements: int) -> int:
    return -(-elements // _ALIGNMENT_ELEMENTS) * _ALIGNMENT_ELEMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A part of the flat gradient that is all-reduced at once, and the parameters in it."""

    start: int
    end: int
    names: tuple[str, ...]


def cut_into_buckets(segments: Sequence[Segment], *, end: int, most: int) -> list[Bucket]:
    """Buckets of up to `most` elements that cover everything up to `end`, last parameters first.

    A larger parameter has a bucket of its own.
    """
    buckets: list[Bucket] = []
    names: list[str] = []
    start = end
    for segment in reversed(segments):
        if names and end - segment.start > most:
            buckets.append(Bucket(start=start, end=end, names=tuple(names)))
            names, end = [], start
        names.insert(0, segment.name)
        start = segment.start
    return [*buckets, Bucket(start=start, end=end, names=tuple(names))]
