"""What a searched cut gains over --split-by, predicted and measured: stages beside each other that sleep.

    python benchmarks/planner_search.py [--models unet unet_same resnet50 mnist_cnn] [--repeats 5]

The passes of every layer are timed once, in one thread and in processor seconds, so that other programs of
the machine count less. From these times the search cuts the model; the cuts
of --split-by parameters, cost and time are the ones to compare with. Then the stages of every cut are built
and their passes are timed as wholes. A process per stage sleeps these measured seconds in the order of the
1F1B table; a message counts as arrived after the time that the link needs for its bytes. The update is timed
from the first pass to the last. The search itself is timed as well.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from drivetrain.bench.machine import describe_machine
from drivetrain.pipeline.cutting.cut import Cut, StageModule
from drivetrain.pipeline.graph.shapes import GraphWalk
from drivetrain.planner.costs import LayerTime, Link, ModelTimes
from drivetrain.planner.search.exact import stage_plan_of
from drivetrain.planner.search.families import Family
from drivetrain.planner.search.from_recipe import ASSUMED_LINK, problem_from_recipe
from drivetrain.planner.search.layout import Layout, evaluate
from drivetrain.planner.search.problem import Problem
from drivetrain.planner.search.result import search_layouts
from drivetrain.planner.search.search import Searcher
from drivetrain.planner.search.subject import Subject, subject_of
from drivetrain.recipe.load import resolve_recipe
from drivetrain.schedules.actions import Edge, Kind, Schedule
from drivetrain.schedules.simulator import simulate
from drivetrain.schedules.traffic import Message, messages

RESULTS = Path(__file__).parent / "results"
WAYS = ("parameters", "cost", "time")
MICRO_BATCHES = 8


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with its stages and micro-batch; passes take long enough to be slept."""

    stages: int
    micro: int
    options: Mapping[str, Any]


CASES = {
    "unet": Case(stages=4, micro=1, options={"image_size": 196}),
    "unet_same": Case(stages=4, micro=1, options={"image_size": 192}),
    "resnet50": Case(stages=4, micro=4, options={"dataset": "imagenet", "dataset_size": 1000}),
    "mnist_cnn": Case(stages=2, micro=512, options={"dataset": "mnist"}),
}
SEARCHES = {"unet on 8 devices": ("unet", 8, 1, 388), "resnet152 on 16 devices": ("resnet152", 16, 16, 224)}


class LayerClock(GraphWalk):
    """Times the forward and the backward pass of each layer on its own."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject.model, graph=subject.traced.graph)
        self._traced = subject.traced
        self.seconds: dict[Node, tuple[float, float]] = {}

    def run_node(self, n: Node) -> Any:
        inputs = {value: self.env[value] for value in n.all_input_nodes if value in self.env}
        for value, held in inputs.items():
            if isinstance(held, Tensor) and held.is_floating_point():
                # No gradient of the images is needed.
                is_read = n.op != "output" and value.op != "placeholder"
                self.env[value] = held.detach().requires_grad_(is_read)
        begun_s = time.process_time()
        result = super().run_node(n)
        ended_s = time.process_time()
        backward_s = _backward_seconds(result)
        self.seconds[n] = (ended_s - begun_s, backward_s)
        self.env.update(inputs)
        return result.detach() if isinstance(result, Tensor) else result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        return self._traced.attribute(target)


def _backward_seconds(result: Any) -> float:
    if not isinstance(result, Tensor) or result.grad_fn is None:
        return 0.0
    gradient = torch.ones_like(result)
    begun_s = time.process_time()
    result.backward(gradient)  # type: ignore[no-untyped-call]
    return time.process_time() - begun_s


def real_subject(model: str, case: Case) -> Subject:
    """The recipe's model with weights of its own."""
    options = {
        "model": model,
        "micro_batch_size": case.micro,
        "global_batch_size": case.micro * MICRO_BATCHES,
        "device": "cpu",
        **case.options,
    }
    subject = subject_of(resolve_recipe(overrides=options))
    real = subject.model.to_empty(device="cpu").train()
    for tensor in (*real.parameters(), *real.buffers()):
        if tensor.is_floating_point():
            torch.nn.init.constant_(tensor, 0.01)
    outline = replace(subject.planned.outline, model=real)
    planned = replace(subject.planned, outline=outline)
    return replace(subject, planned=planned, traced=subject.traced.on(real))


def layer_times(subject: Subject, *, repeats: int) -> ModelTimes:
    """The fastest passes of each layer."""
    images = torch.rand(subject.recipe.micro_batch_size, *subject.image_shape)
    runs = []
    for _ in range(1 + repeats):
        clock = LayerClock(subject)
        clock.walk(images.clone())
        runs.append(clock.seconds)
    layers = []
    for layer in subject.traced.layers:
        forward, backward = zip(*(run[layer.node] for run in runs[1:]), strict=True)
        layers.append(LayerTime(name=layer.name, forward_s=min(forward), backward_s=min(backward)))
    return ModelTimes(
        layers=layers, micro_batch_size=subject.recipe.micro_batch_size, update_s=0.0, source="measured"
    )


def stage_seconds(
    subject: Subject, cuts: Mapping[tuple[int, ...], Cut], *, repeats: int
) -> dict[tuple[int, ...], tuple[list[float], list[float]]]:
    """The fastest forward and backward pass of each whole stage; cuts take turns, as machines have moods."""
    found: dict[tuple[int, ...], list[tuple[list[float], list[float]]]] = {firsts: [] for firsts in cuts}
    for _ in range(1 + repeats):
        for firsts, cut in cuts.items():
            found[firsts].append(_stages_once(subject, cut.stages))
    return {firsts: _fastest(runs[1:]) for firsts, runs in found.items()}


def _fastest(runs: Sequence[tuple[list[float], list[float]]]) -> tuple[list[float], list[float]]:
    forward, backward = zip(*runs, strict=True)
    return [min(stage) for stage in zip(*forward, strict=True)], [
        min(stage) for stage in zip(*backward, strict=True)
    ]


def _stages_once(subject: Subject, stages: Sequence[StageModule]) -> tuple[list[float], list[float]]:
    values = {subject.traced.input: torch.rand(subject.recipe.micro_batch_size, *subject.image_shape)}
    forward, backward = [], []
    for stage in stages:
        inputs = [values[name] for name in stage.stage_facts.inputs]
        there_s, back_s, outputs = _timed_pass(stage, inputs, images=subject.traced.input)
        forward.append(there_s)
        backward.append(back_s)
        values |= dict(zip(stage.stage_facts.outputs, outputs, strict=True))
    return forward, backward


def _timed_pass(
    stage: StageModule, inputs: Sequence[Tensor], *, images: str
) -> tuple[float, float, list[Tensor]]:
    received = [
        held.detach().requires_grad_(held.is_floating_point() and name != images)
        for name, held in zip(stage.stage_facts.inputs, inputs, strict=True)
    ]
    begun_s = time.process_time()
    outputs = stage(*received)
    ended_s = time.process_time()
    trained = [output for output in outputs if output.requires_grad]
    gradients = [torch.ones_like(output) for output in trained]
    back_s = time.process_time()
    torch.autograd.backward(trained, gradients)
    return ended_s - begun_s, time.process_time() - back_s, [output.detach() for output in outputs]


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """What every process of an emulated update knows."""

    schedule: Schedule
    edges: tuple[Edge, ...]
    bytes_of: Mapping[str, int]
    forward_s: Sequence[float]
    backward_s: Sequence[float]
    link: Link
    updates: int


def play(
    device: int,
    plan: Emulation,
    barrier: Barrier,
    incoming: Mapping[int, Connection],
    outgoing: Mapping[int, Connection],
    report: Connection,
) -> None:
    """One device: sleeps through its row of the table; reports when each update began and ended."""
    traffic = messages(plan.schedule, plan.edges)
    spans = []
    for _ in range(plan.updates):
        arrived: dict[Message, float] = {}
        waiting = {sender: iter(sent) for sender, sent in traffic.incoming(device).items()}
        barrier.wait()
        begun_s = time.perf_counter()
        for index, action in enumerate(plan.schedule.table[device]):
            for message in traffic.before(device, index):
                while message not in arrived:
                    sender = message.from_device
                    arrived[next(waiting[sender])] = incoming[sender].recv()
                _sleep_until(arrived[message])
            seconds = plan.forward_s if action.kind is Kind.FORWARD else plan.backward_s
            _sleep_until(time.perf_counter() + seconds[action.stage])
            for message in traffic.after(device, index):
                size = plan.bytes_of[message.value]
                outgoing[message.to_device].send(time.perf_counter() + plan.link.seconds(size))
        spans.append((begun_s, time.perf_counter()))
    report.send(spans)


def _sleep_until(moment_s: float) -> None:
    left_s = moment_s - time.perf_counter()
    if left_s > 0:
        time.sleep(left_s)


def emulate(plan: Emulation) -> list[float]:
    """The seconds of each update, from the first pass of any device to the last one."""
    devices = plan.schedule.devices
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(devices)
    pipes = {
        (start, end): context.Pipe(duplex=False)
        for start in range(devices)
        for end in range(devices)
        if start != end
    }
    reports = [context.Pipe(duplex=False) for _ in range(devices)]
    processes = []
    for device in range(devices):
        incoming = {start: pipe[0] for (start, end), pipe in pipes.items() if end == device}
        outgoing = {end: pipe[1] for (start, end), pipe in pipes.items() if start == device}
        arguments = (device, plan, barrier, incoming, outgoing, reports[device][1])
        processes.append(context.Process(target=play, args=arguments))
    for process in processes:
        process.start()
    spans = [report[0].recv() for report in reports]
    for process in processes:
        process.join()
    return [
        max(ended_s for _, ended_s in update) - min(begun_s for begun_s, _ in update)
        for update in zip(*spans, strict=True)
    ]


def measure_cut(
    subject: Subject,
    problem: Problem,
    searcher: Searcher,
    layout: Layout,
    seconds: tuple[list[float], list[float]],
    *,
    repeats: int,
) -> dict[str, Any]:
    """The predicted and the slept update of one cut; `seconds` are those of its stages."""
    predicted = evaluate(problem, searcher.segments(layout), layout, memory=False)
    plan = stage_plan_of(subject, layout)
    cut = plan.cut()
    forward, backward = seconds
    bytes_of = {name: info.num_bytes for name, info in plan.shapes.values.items()}
    emulation = Emulation(
        schedule=layout.table(),
        edges=cut.edges,
        bytes_of=bytes_of,
        forward_s=forward,
        backward_s=backward,
        link=ASSUMED_LINK,
        updates=repeats,
    )
    from_stages = simulate(
        layout.table(),
        forward_s=forward,
        backward_s=backward,
        edges=cut.edges,
        latency_s=ASSUMED_LINK.latency_s,
        bytes_of=bytes_of,
        bytes_per_s=ASSUMED_LINK.bytes_per_s,
    )
    updates = emulate(emulation)
    return {
        "splits": [subject.traced.layers[first].name for first in layout.firsts],
        "predicted_seconds": round(predicted.seconds, 5),
        "predicted_from_whole_stages_seconds": round(from_stages.seconds_per_update, 5),
        "measured_seconds": round(statistics.median(updates), 5),
        "updates_seconds": [round(each, 5) for each in updates],
        "stage_forward_seconds": [round(each, 5) for each in forward],
        "stage_backward_seconds": [round(each, 5) for each in backward],
    }


def measure_model(model: str, case: Case, *, repeats: int) -> dict[str, Any]:
    """All cuts of a model, beside the searched one."""
    subject = real_subject(model, case)
    times = layer_times(subject, repeats=repeats)
    problem = problem_from_recipe(subject, devices=case.stages, times=times, stages=case.stages, replicas=1)
    searcher = Searcher(problem)
    family = Family(
        device_of=tuple(range(case.stages)),
        schedule="1f1b",
        replicas=1,
        micro=case.micro,
        accumulation=MICRO_BATCHES,
        group=1,
        offloads=False,
    )
    best = searcher.family(family)
    assert best is not None
    layouts = {"searched": searcher.moved(best).layout}
    for way, firsts in zip(("cost", "parameters", "time"), problem.seeds(case.stages), strict=True):
        layouts[way] = replace(layouts["searched"], firsts=firsts)
    distinct = {layout.firsts: layout for layout in layouts.values()}
    built = {firsts: stage_plan_of(subject, layout).cut() for firsts, layout in distinct.items()}
    seconds = stage_seconds(subject, built, repeats=repeats)
    measured = {
        firsts: measure_cut(subject, problem, searcher, layout, seconds[firsts], repeats=repeats)
        for firsts, layout in distinct.items()
    }
    # Ways that find the same cut share its measurement.
    cuts = {name: measured[layout.firsts] for name, layout in layouts.items()}
    searched = cuts["searched"]
    return {
        "stages": case.stages,
        "micro_batch": case.micro,
        "micro_batches": MICRO_BATCHES,
        "options": dict(case.options),
        "shorter_than": {
            way: {
                kind: round(1 - searched[f"{kind}_seconds"] / cuts[way][f"{kind}_seconds"], 4)
                for kind in ("predicted", "measured")
            }
            for way in WAYS
        },
        "cuts": cuts,
    }


def time_search(model: str, devices: int, micro: int, size: int) -> dict[str, float]:
    """Seconds from the recipe to the rows, and of the search alone."""
    options = {"model": model, "micro_batch_size": micro, "global_batch_size": 16 * micro}
    if model == "unet":
        options["image_size"] = size
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    subject = subject_of(resolve_recipe(overrides=options))
    problem = problem_from_recipe(subject, devices=devices)
    looked_s = time.perf_counter()
    search_layouts(subject, problem)
    ended_s = time.perf_counter()
    return {
        "seconds": round(ended_s - begun_s, 2),
        "processor_seconds": round(time.process_time() - begun_cpu_s, 2),
        "of_which_looking_into_the_model": round(looked_s - begun_s, 2),
    }


def each(names: Sequence[str], measure: Callable[[str], Any]) -> dict[str, Any]:
    found = {}
    for name in names:
        found[name] = measure(name)
        print(name, json.dumps(found[name].get("shorter_than", found[name])), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", default=str(RESULTS / "planner_search-cpu-2-cores.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    load_before = os.getloadavg()[0]
    searches = each(list(SEARCHES), lambda name: time_search(*SEARCHES[name]))
    models = each(args.models, lambda name: measure_model(name, CASES[name], repeats=args.repeats))
    result = {
        "command": f"python benchmarks/planner_search.py --models {' '.join(args.models)} "
        f"--repeats {args.repeats}",
        "machine": describe_machine(),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "link": {"bytes_per_s": ASSUMED_LINK.bytes_per_s, "latency_s": ASSUMED_LINK.latency_s},
        "search": searches,
        "models": models,
    }
    Path(args.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
