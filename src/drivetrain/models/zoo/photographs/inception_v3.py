"""Inception-v3 without the auxiliary classifier, as Keras has it: batch norms have no scale.

Blocks and branches have the names that they have in Keras, whose convolutions have none. Initial weights are
those of Keras: Glorot uniform, biases 0.
"""

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from drivetrain.models.zoo.layer_graph import LayerGraph
from drivetrain.models.zoo.layers import Concatenate, GlobalMean

_BN_EPS = 1e-3
# torch's momentum weights the new value: 0.01 is 0.99 in Keras' terms.
_BN_MOMENTUM = 0.01


class _Convolution(NamedTuple):
    """A convolution with norm and ReLU; without padding if `is_valid`."""

    width: int
    height_of_kernel: int = 1
    width_of_kernel: int = 1
    stride: int = 1
    is_valid: bool = False


class _Output(NamedTuple):
    """A layer and its number of channels."""

    layer: str
    width: int


_Branches = Mapping[str, tuple[_Convolution, ...]]

_STEM_BEFORE_POOL = (
    _Convolution(32, 3, 3, stride=2, is_valid=True),
    _Convolution(32, 3, 3, is_valid=True),
    _Convolution(64, 3, 3),
)
_STEM_AFTER_POOL = (_Convolution(80, is_valid=True), _Convolution(192, 3, 3, is_valid=True))


def _square_branches() -> _Branches:
    """The branches of blocks at an eighth of the image's size."""
    return {
        "branch1x1": (_Convolution(64),),
        "branch5x5": (_Convolution(48), _Convolution(64, 5, 5)),
        "branch3x3dbl": (_Convolution(64), _Convolution(96, 3, 3), _Convolution(96, 3, 3)),
    }


def _long_branches(inner: int) -> _Branches:
    """The branches of blocks at a sixteenth of the image's size, with kernels of 1x7 and 7x1."""
    wide, tall = _Convolution(inner, 1, 7), _Convolution(inner, 7, 1)
    return {
        "branch1x1": (_Convolution(192),),
        "branch7x7": (_Convolution(inner), wide, _Convolution(192, 7, 1)),
        "branch7x7dbl": (_Convolution(inner), tall, wide, tall, _Convolution(192, 1, 7)),
    }


def _shrinking(width: int) -> _Convolution:
    return _Convolution(width, 3, 3, stride=2, is_valid=True)


_FIRST_SHRINKING: _Branches = {
    "branch3x3": (_shrinking(384),),
    "branch3x3dbl": (_Convolution(64), _Convolution(96, 3, 3), _shrinking(96)),
}
_SECOND_SHRINKING: _Branches = {
    "branch3x3": (_Convolution(192), _shrinking(320)),
    "branch7x7x3": (_Convolution(192), _Convolution(192, 1, 7), _Convolution(192, 7, 1), _shrinking(192)),
}
# Each of these branches forks into a kernel of 1x3 and one of 3x1.
_FORKS: _Branches = {
    "branch3x3": (_Convolution(384),),
    "branch3x3dbl": (_Convolution(448), _Convolution(384, 3, 3)),
}
_FORK_WIDTH = 384


class InceptionV3(LayerGraph):
    """A stem, eleven blocks of parallel branches, a classifier; returns logits."""

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__()
        output = self._add_chain("stem1", _STEM_BEFORE_POOL, _Output(self.last_layer, channels))
        output = _Output(self.add("stem1_pool", nn.MaxPool2d(3, stride=2)), output.width)
        output = self._add_chain("stem2", _STEM_AFTER_POOL, output)
        output = _Output(self.add("stem2_pool", nn.MaxPool2d(3, stride=2)), output.width)
        for block, pooled_width in enumerate((32, 64, 64)):
            output = self._add_block(f"mixed{block}", _square_branches(), output, pooled_width=pooled_width)
        output = self._add_block("mixed3", _FIRST_SHRINKING, output)
        for block, inner in enumerate((128, 160, 160, 192), start=4):
            output = self._add_block(f"mixed{block}", _long_branches(inner), output, pooled_width=192)
        output = self._add_block("mixed8", _SECOND_SHRINKING, output)
        for block in (9, 10):
            output = self._add_forking_block(f"mixed{block}", output)
        self.add("avg_pool", GlobalMean())
        self.add("predictions", nn.Linear(output.width, num_classes))

    def _add_block(
        self, name: str, branches: _Branches, inputs: _Output, *, pooled_width: int | None = None
    ) -> _Output:
        """Adds parallel branches and a pooling, which shrinks the features if nothing follows it."""
        outputs = [self._add_chain(f"{name}_{branch}", chain, inputs) for branch, chain in branches.items()]
        if pooled_width is None:
            pool = self.add(f"{name}_pool", nn.MaxPool2d(3, stride=2), inputs.layer)
            outputs.append(_Output(pool, inputs.width))
        else:
            outputs.append(self._add_pooled(name, inputs, pooled_width))
        return self._concatenate(name, outputs)

    def _add_forking_block(self, name: str, inputs: _Output) -> _Output:
        outputs = [self._add_chain(f"{name}_branch1x1", (_Convolution(320),), inputs)]
        for branch, chain in _FORKS.items():
            trunk = self._add_chain(f"{name}_{branch}", chain, inputs)
            ends = {"wide": _Convolution(_FORK_WIDTH, 1, 3), "tall": _Convolution(_FORK_WIDTH, 3, 1)}
            parts = [self._add_chain(f"{name}_{branch}_{end}", (ends[end],), trunk) for end in ends]
            outputs.append(self._concatenate(f"{name}_{branch}_concat", parts))
        outputs.append(self._add_pooled(name, inputs, 192))
        return self._concatenate(name, outputs)

    def _add_pooled(self, name: str, inputs: _Output, width: int) -> _Output:
        """Adds average pooling that ignores what is outside of the image, and a convolution."""
        pool = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
        pooled = _Output(self.add(f"{name}_pool", pool, inputs.layer), inputs.width)
        return self._add_chain(f"{name}_branch_pool", (_Convolution(width),), pooled)

    def _concatenate(self, name: str, outputs: list[_Output]) -> _Output:
        self.add(name, Concatenate(), *(output.layer for output in outputs))
        return _Output(name, sum(output.width for output in outputs))

    def _add_chain(self, prefix: str, chain: tuple[_Convolution, ...], inputs: _Output) -> _Output:
        output = inputs
        for index, each in enumerate(chain, start=1):
            kernel = (each.height_of_kernel, each.width_of_kernel)
            padding = (0, 0) if each.is_valid else (kernel[0] // 2, kernel[1] // 2)
            name = f"{prefix}_{index}"
            convolution = nn.Conv2d(
                output.width, each.width, kernel, stride=each.stride, padding=padding, bias=False
            )
            self.add(f"{name}_conv", convolution, output.layer)
            self.add(f"{name}_bn", _batch_norm(each.width))
            output = _Output(self.add(f"{name}_relu", nn.ReLU()), each.width)
        return output


def _batch_norm(width: int) -> nn.BatchNorm2d:
    """A batch norm with a shift but no scale."""
    norm = nn.BatchNorm2d(width, eps=_BN_EPS, momentum=_BN_MOMENTUM)
    norm.register_parameter("weight", None)
    return norm


def inception_v3(*, channels: int, num_classes: int) -> InceptionV3:
    """The network of 48 layers."""
    return InceptionV3(channels=channels, num_classes=num_classes)
