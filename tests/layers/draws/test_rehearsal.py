"""A rehearsal finds out where a model draws and for which samples, and leaves no trace."""

import random

import numpy as np
import torch
from torch import Tensor, nn

from drivetrain.core.element_hash import signed
from drivetrain.core.randomness import stream_key
from drivetrain.layers.context import NO_SAMPLES, ROWS_APART
from drivetrain.layers.draws.facts import DrawFacts
from drivetrain.layers.draws.rehearsal import rehearse_draws
from tests.layers.draws import drawing_models

SHAPE = (3, 6, 6)


def _facts(model: nn.Module) -> DrawFacts:
    return rehearse_draws(model, image_shape=SHAPE, seed=3)


def test_a_model_with_known_layers_only_needs_no_places() -> None:
    facts = _facts(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(108, 5)))
    assert not facts.needs_places
    assert not facts.sample_dims


def test_where_generators_are_used() -> None:
    assert _facts(drawing_models.GeneratorNoise()).places == {"noise": True}
    assert _facts(drawing_models.OwnGenerators()).places == {"noise": True}
    assert _facts(drawing_models.Recurrent()).places == {"rnn": True}
    root = _facts(drawing_models.RootNoise())
    assert root.places == {"": False}
    assert root.by_micro_batch == ("bernoulli_ in the model", "rand_like in the model")


def test_functions_that_draw_per_sample_need_no_generator() -> None:
    facts = _facts(drawing_models.FunctionalDropout())
    assert facts.places == {"": False}
    assert facts.by_micro_batch == ()


def test_which_dimension_holds_the_samples() -> None:
    facts = _facts(drawing_models.SequenceFirst())
    key = signed(stream_key(3, "dropout", "drop"))
    assert facts.sample_dims == {(key, 0): 1, (key, 1): None}


def test_checkpoint_is_seen() -> None:
    assert all(_facts(kind()).uses_checkpoint for kind in drawing_models.CHECKPOINTED)
    assert not _facts(drawing_models.Attention()).uses_checkpoint


def test_no_trace_is_left() -> None:
    class Counting(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            outputs: Tensor = self.norm(x) + random.random() + np.random.rand() + torch.rand(1)
            return outputs

    model = Counting().eval()
    before = (torch.get_rng_state(), random.getstate(), repr(np.random.get_state(legacy=False)))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    _facts(model)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), repr(np.random.get_state(legacy=False)))
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())
    assert not model.training


def test_nothing_is_known_of_a_model_that_does_not_run() -> None:
    facts = _facts(nn.Linear(7, 7))
    assert not facts.needs_places
    assert facts.failure.startswith("RuntimeError: ")


def test_rows_of_a_sample_that_lie_apart_are_found() -> None:
    key = signed(stream_key(3, "dropout", "drop"))
    torch.manual_seed(0)
    assert _facts(drawing_models.TwoViews()).sample_dims == {(key, 0): ROWS_APART}
    assert _facts(drawing_models.FlattenedSequences()).sample_dims == {(key, 0): ROWS_APART}
    assert _facts(drawing_models.Windows()).sample_dims == {}


class Mixing(nn.Module):
    """Rows that belong to no single sample."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        rows = (x.flatten(1) - x.flatten(1).mean(0)).repeat_interleave(2, 0)
        outputs: Tensor = self.drop(rows)[::2]
        return outputs


def test_rows_that_cannot_be_told_apart_belong_to_the_micro_batch() -> None:
    facts = _facts(Mixing())
    assert list(facts.sample_dims.values()) == [NO_SAMPLES]
    assert facts.belong_to_micro_batches


def test_draws_in_code_that_chance_skips_are_found() -> None:
    assert _facts(drawing_models.SkippedLayer()).places == {"gate": True, "gate.layer": True}
