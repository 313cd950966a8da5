"""Models whose stages are out of the ordinary, and subjects of a test made of them."""

import torch
from torch import Tensor, nn

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.pipeline.cutting.stage_plan import plan_stages
from tests.pipeline.staged import MICRO_BATCHES, RECIPE, Subject

__all__ = ["OwnNorm", "RepeatedDropout", "Views", "WholeNumbers", "WithOwnNorm", "cut_subject"]


class Views(nn.Module):
    """Layers that do nothing but look at their input in another way, or hand it on as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.flatten = nn.Flatten()
        self.fold = nn.Unflatten(1, (4, 4, 4))
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.same = nn.Identity()
        self.again = nn.Flatten()
        self.line = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = self.fold(self.flatten(torch.tanh(self.first(images))))
        features = torch.tanh(self.second(features))
        logits: Tensor = self.line(self.again(self.same(features)))
        return logits


class RepeatedDropout(nn.Module):
    """One dropout layer in three places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv2d(4, 4, 2)
        self.third = nn.Linear(4, 10)
        self.drop = nn.Dropout(0.4)

    def forward(self, images: Tensor) -> Tensor:
        features = self.drop(self.first(images))
        features = self.drop(self.second(features)).mean((2, 3))
        logits: Tensor = self.drop(self.third(features))
        return logits


class WholeNumbers(nn.Module):
    """A later layer looks something up by the number of the brightest channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.pool = nn.MaxPool2d(2)
        self.places = nn.Embedding(4, 10)
        self.second = nn.Linear(4, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = torch.tanh(self.first(images))
        brightest = features.mean((2, 3)).argmax(1)
        logits: Tensor = self.second(self.pool(features).mean((2, 3))) + self.places(brightest)
        return logits


class OwnNorm(nn.BatchNorm2d):
    """A kind of batch norm that moves its own statistics."""

    def forward(self, inputs: Tensor) -> Tensor:
        statistics, momentum = (self.running_mean, self.running_var), (self.momentum or 0.0) / 2
        uses_batch = self.training or self.running_mean is None
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return 2 * nn.functional.batch_norm(
            inputs, *statistics, self.weight, self.bias, uses_batch, momentum, self.eps
        )


class WithOwnNorm(nn.Module):
    """A model whose batch norm nobody takes over."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, bias=False)
        self.norm = OwnNorm(4)
        self.second = nn.Conv2d(4, 4, 2)
        self.line = nn.Linear(4, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = torch.tanh(self.second(torch.tanh(self.norm(self.first(images)))))
        logits: Tensor = self.line(features.mean((2, 3)))
        return logits


def cut_subject(model: nn.Module, *splits: str, dtype: torch.dtype = torch.float64) -> Subject:
    """A model, its one plan, and images of 4 x 4 pixels to train it with."""
    model = model.to(dtype)
    generator = torch.Generator().manual_seed(0)
    samples = 2 * MICRO_BATCHES
    images = torch.randn(samples, 3, 4, 4, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 10, (samples,), generator=generator)
    recipe = RECIPE.model_copy(update={"pipeline_splits": splits})
    plan = plan_stages(recipe, model, image_shape=(3, 4, 4), micro=2, accumulation=MICRO_BATCHES)
    assert plan is not None
    batch = MicroBatch(
        images.contiguous(memory_format=torch.channels_last), labels, None, torch.arange(samples)
    )
    return Subject(model, batch, plans=[plan])
