"""Networks made of named layers: what each layer reads, and how long its output is kept."""

import weakref

import torch
from torch import Tensor, nn

from drivetrain.models.zoo.layer_graph import IMAGES, LayerGraph
from drivetrain.models.zoo.layers import Add


class _Watching(nn.Module):
    """Passes its input on, and notes which of the outputs it watches are still there."""

    def __init__(self, watched: list["weakref.ref[Tensor]"]) -> None:
        super().__init__()
        self.watched = watched
        self.alive: list[bool] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.alive = [reference() is not None for reference in self.watched]
        outputs = inputs + 1
        self.watched.append(weakref.ref(outputs))
        return outputs


def test_a_layer_reads_the_one_before_it_or_those_that_are_named() -> None:
    graph = LayerGraph()
    assert graph.last_layer == IMAGES
    graph.add("negated", nn.Threshold(10.0, -1.0))
    graph.add("plain", nn.ReLU(), IMAGES)
    assert graph.add("sum", Add(), "negated", "plain") == graph.last_layer == "sum"
    assert list(dict(graph.named_children())) == ["negated", "plain", "sum"]
    assert graph(torch.tensor([2.0, -3.0])).tolist() == [1.0, -1.0]


def test_a_layer_may_read_an_output_twice() -> None:
    graph = LayerGraph()
    graph.add("one", nn.ReLU())
    graph.add("twice", Add(), "one", "one")
    assert graph(torch.ones(2)).tolist() == [2.0, 2.0]


@torch.no_grad()
def test_an_output_is_forgotten_when_its_last_reader_has_run() -> None:
    graph, watched = LayerGraph(), list["weakref.ref[Tensor]"]()
    layers = [_Watching(watched) for _ in range(4)]
    for index, layer in enumerate(layers[:3]):
        graph.add(f"layer{index}", layer)
    graph.add("sum", Add(), "layer2", "layer0")
    graph.add("layer3", layers[3])
    graph(torch.zeros(1))
    assert [layer.alive for layer in layers] == [[], [True], [True, True], [False, False, False]]
    watched.clear()
    graph.add("late", Add(), "layer3", "layer1")
    graph(torch.zeros(1))
    assert layers[3].alive == [False, True, False]
