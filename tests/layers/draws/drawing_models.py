# mypy: disable-error-code="no-any-return"
"""Small classifiers that draw random numbers in their own ways; inputs are 3 x 6 x 6, outputs 5 classes."""

import random

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = ["BY_MICRO_BATCH", "BY_SAMPLE", "CHECKPOINTED", "DropPath"]


class _Net(nn.Module):
    """Convolution, something in the middle, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def middle(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(torch.relu(self.first(x)))
        return self.head(torch.relu(self.second(x)).mean((2, 3)))


class FunctionalDropout(_Net):
    def middle(self, x: Tensor) -> Tensor:
        return functional.dropout2d(functional.dropout(x, 0.3, self.training), 0.2, self.training)


class AlphaDropouts(_Net):
    def __init__(self) -> None:
        super().__init__()
        self.elements, self.channels = nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.2)

    def middle(self, x: Tensor) -> Tensor:
        return self.channels(functional.alpha_dropout(self.elements(x), 0.1, self.training))


class RandomReLU(_Net):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.RReLU()

    def middle(self, x: Tensor) -> Tensor:
        return functional.rrelu(self.act(x - 0.5), training=self.training)


class DropPath(nn.Module):
    """As many projects have it."""

    def __init__(self, drop_prob: float, *, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob, self.scale_by_keep = drop_prob, scale_by_keep

    def forward(self, x: Tensor) -> Tensor:
        if self.drop_prob == 0.0 or not self.training:
            return x
        kept = 1 - self.drop_prob
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(kept)
        return x * (mask.div_(kept) if self.scale_by_keep else mask)


class DroppedPaths(_Net):
    def __init__(self) -> None:
        super().__init__()
        self.scaled, self.plain = DropPath(0.3), DropPath(0.3, scale_by_keep=False)

    def middle(self, x: Tensor) -> Tensor:
        return x + self.plain(self.scaled(x))


class Attention(_Net):
    """Sequences first, as torch's layer has them by default, with as many positions as samples."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.4, batch_first=True)

    def middle(self, x: Tensor) -> Tensor:
        rows = x[:, :, :2, :1].flatten(2).permute(2, 0, 1)
        rows = self.encoder(rows).transpose(0, 1)
        rows = self.attention(rows, rows, rows, need_weights=False)[0]
        return x + rows.mean(1)[:, :, None, None]


class FusedAttention(_Net):
    def middle(self, x: Tensor) -> Tensor:
        rows = x.flatten(2).transpose(1, 2).unsqueeze(1)
        rows = functional.scaled_dot_product_attention(
            rows, rows, rows, dropout_p=0.3 if self.training else 0.0, is_causal=True
        )
        return x + rows.squeeze(1).mean(1)[:, :, None, None]


class SequenceFirst(_Net):
    """nn.Dropout where the samples are the second dimension, and where no dimension holds samples."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.4)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))

    def middle(self, x: Tensor) -> Tensor:
        rows = self.drop(x.flatten(2).permute(2, 0, 1))
        return rows.permute(1, 2, 0).view_as(x) * self.drop(self.scale)


class TwoViews(_Net):
    """The rows of a sample lie apart: all samples, then all of them mirrored."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.4)

    def middle(self, x: Tensor) -> Tensor:
        first, second = self.drop(torch.cat([x, x.flip(-1)])).chunk(2)
        return first + second.flip(-1)


class FlattenedSequences(_Net):
    """Sequences first, then flattened, so that the rows of a sample lie apart."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.4)

    def middle(self, x: Tensor) -> Tensor:
        rows = x.flatten(2).permute(2, 0, 1)
        return self.drop(rows.flatten(0, 1)).view_as(rows).permute(1, 2, 0).view_as(x)


class Windows(_Net):
    """The rows of a sample lie together."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.4)

    def middle(self, x: Tensor) -> Tensor:
        rows = x.flatten(2).transpose(1, 2)
        return self.drop(rows.flatten(0, 1)).view_as(rows).transpose(1, 2).reshape(x.shape)


class _Gate(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        if random.random() < 0.6:
            return x
        return x + self.layer(x.flatten(2).transpose(1, 2))[0][:, -1, :, None, None]


class SkippedLayer(_Net):
    """What is drawn decides whether a layer runs that draws too."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = _Gate(nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True))

    def middle(self, x: Tensor) -> Tensor:
        return self.gate(x)


class Checkpointed(_Net):
    """A shared dropout layer in two regions that the backward pass runs again, the last one first."""

    reentrant = False

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.4)
        self.norm = nn.BatchNorm2d(4)
        self.checkpoints = checkpoints

    def region(self, x: Tensor) -> Tensor:
        return functional.dropout(self.drop(self.norm(x)), 0.2, self.training)

    def middle(self, x: Tensor) -> Tensor:
        for _ in range(2):
            if self.checkpoints:
                x = checkpoint(self.region, x, use_reentrant=self.reentrant)
            else:
                x = self.region(x)
        return x


class ReentrantCheckpointed(Checkpointed):
    reentrant = True


class _Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x + 0.3 * torch.randn(x.shape) + random.random() + np.random.rand()


class GeneratorNoise(_Net):
    """A module of its own that draws from every generator."""

    def __init__(self) -> None:
        super().__init__()
        self.noise = _Noise()

    def middle(self, x: Tensor) -> Tensor:
        return self.noise(self.noise(x))


class _OwnGenerators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.torch, self.python, self.numpy = torch.Generator(), random.Random(3), np.random.default_rng(4)
        self.older = np.random.RandomState(5)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=self.torch)
        return x + 0.1 * noise + self.python.random() + self.numpy.random() + self.older.rand()


class OwnGenerators(_Net):
    def __init__(self) -> None:
        super().__init__()
        self.noise = _OwnGenerators()

    def middle(self, x: Tensor) -> Tensor:
        return self.noise(x)


class RootNoise(_Net):
    """Functions that draw in the code of the model itself."""

    def middle(self, x: Tensor) -> Tensor:
        mask = torch.empty_like(x).bernoulli_(0.7)
        return x * mask + 0.1 * torch.rand_like(x)


class Recurrent(_Net):
    """Dropout between the layers of an LSTM, which no function of Python shows."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True)

    def middle(self, x: Tensor) -> Tensor:
        rows, _ = self.rnn(x.flatten(2).transpose(1, 2))
        return x + rows[:, -1, :, None, None]


BY_SAMPLE: tuple[type[nn.Module], ...] = (
    FunctionalDropout,
    AlphaDropouts,
    RandomReLU,
    DroppedPaths,
    Attention,
    FusedAttention,
    SequenceFirst,
    TwoViews,
    FlattenedSequences,
    Windows,
)
BY_MICRO_BATCH: tuple[type[nn.Module], ...] = (
    GeneratorNoise,
    OwnGenerators,
    RootNoise,
    Recurrent,
    SkippedLayer,
)
CHECKPOINTED: tuple[type[Checkpointed], ...] = (Checkpointed, ReentrantCheckpointed)
