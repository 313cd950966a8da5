"""Training steps on one accelerator: drivetrain by its own path, and loops written by hand, in one process.

    python benchmarks/gpu_training.py --cases mnist unet-8 --output FILE.json [--profile]
    python benchmarks/gpu_training.py --device cpu --tiny --seconds 1 --output FILE.json   # to try it

- eager: a plain PyTorch loop in bfloat16 autocast and channels_last, over one batch on the device.
- captured: the same with model and loss compiled, and the whole step a CUDA graph that is replayed.
- drivetrain: the program that `train` builds from a recipe, compiled and captured; gathering resident
  samples, preprocessing and augmentation (flips, crops, brightness of the U-Net) are inside its step.
- timm, lightning (ResNet-50, where they are installed): timm's model and optimiser in its kind of loop, and
  Lightning's Trainer over batches that lie on the device already, the best loader there can be.

Contenders take turns; what counts is the median of the repeats.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_networks import Work, make_work
from gpu_peers import build_lightning, build_timm
from gpu_turns import Build, Contender, compare, keep, profile_steps, profile_text, read_options, shares

CONTENDERS = ("eager", "captured", "drivetrain", "timm", "lightning")
WARM_UP = 4


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained; `size` is that of the U-Net's output, and of the images elsewhere."""

    kind: str
    batch: int
    size: int
    width: int = 64


CASES = {
    "mnist": Case(kind="mnist", batch=64, size=28),
    "unet-1": Case(kind="unet", batch=1, size=388),
    "unet-8": Case(kind="unet", batch=8, size=388),
    "unet-24": Case(kind="unet", batch=24, size=388),
    "resnet50-256": Case(kind="resnet50", batch=256, size=224),
    "resnet50-2": Case(kind="resnet50", batch=2, size=224),
}


def _tiny(case: Case) -> Case:
    sizes = {"mnist": 28, "unet": 20, "resnet50": 32}
    return Case(kind=case.kind, batch=min(case.batch, 2), size=sizes[case.kind], width=2)


def _step(work: Work, *, device: torch.device, compiles: bool) -> Callable[[], None]:
    optimiser = work.optimiser()

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type != "cpu"):
            logits = work.model(images)
        return work.loss(logits, labels)

    ready = torch.compile(loss_of, dynamic=False) if compiles else loss_of

    def step() -> None:
        optimiser.zero_grad(set_to_none=False)
        ready(work.images, work.labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def _repeated(step: Callable[[], Any], steps: int) -> None:
    for _ in range(steps):
        step()


def build_eager(case: Case, device: torch.device) -> Contender:
    step = _step(_work(case, device), device=device, compiles=False)
    return Contender(run=partial(_repeated, step), device=device)


def build_captured(case: Case, device: torch.device) -> Contender:
    """Elsewhere than on CUDA there is nothing to capture, and what is timed is the eager step."""
    is_cuda = device.type == "cuda"
    step = _step(_work(case, device), device=device, compiles=is_cuda)
    if not is_cuda:
        return Contender(run=partial(_repeated, step), device=device, notes={"captured": False})
    aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(aside):
        _repeated(step, WARM_UP)
    torch.cuda.current_stream(device).wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    notes = {"captured": True}
    return Contender(run=partial(_repeated, graph.replay), device=device, notes=notes, kept=step)


def _work(case: Case, device: torch.device) -> Work:
    return make_work(case.kind, batch=case.batch, size=case.size, width=case.width, device=device)


def _recipe(case: Case, device: torch.device) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "micro_batch_size": case.batch,
        "data_placement": "resident",
        "validation": False,
        "checkpoints": False,
        "num_epochs": 10**6,
        "max_updates": 300_000,
        "device": str(device),
        "compile": "off" if device.type == "cpu" else "on",
    }
    if case.kind == "mnist":
        data = {"dataset": "synthetic", "channels": 1, "num_classes": 10, "dataset_size": 12800}
        return {**shared, **data, "config": "mnist_tutorial", "image_size": case.size}
    if case.kind == "unet":
        data = {"dataset": "synthetic-em", "dataset_size": 24, "validation_fraction": 0.0, "augment": True}
        how = {"optimizer": "adam", "learning_rate": 4e-4, "lr_schedule": "const"}
        size = {"model": "unet", "model_width": case.width, "image_size": case.size}
        return {**shared, **data, **how, **size}
    data = {"dataset": "synthetic", "num_classes": 1000, "dataset_size": max(64, 4 * case.batch)}
    how = {"optimizer": "sgd", "optimizer_params": {"momentum": 0.9}, "lr_schedule": "const"}
    return {**shared, **data, **how, "model": "resnet50", "image_size": case.size, "learning_rate": 0.01}


def build_drivetrain(case: Case, device: torch.device) -> Contender:
    """The program of `train`, from its recipe on."""
    from drivetrain.assembly.training_parts import assemble
    from drivetrain.data.splits import open_data
    from drivetrain.plan.training_plan import plan_training
    from drivetrain.ranks.replica_group import ALONE
    from drivetrain.recipe.load import resolve_recipe
    from drivetrain.run.train import set_up_device

    wanted = _recipe(case, device)
    config = wanted.pop("config", None)
    recipe = resolve_recipe(config=config, overrides=wanted).recipe
    stack = ExitStack()
    own_device = stack.enter_context(set_up_device(recipe, ALONE))
    data = open_data(recipe)
    plan = plan_training(recipe, samples=len(data.train))
    program = assemble(recipe, data=data, model=None, plan=plan, device=own_device).program
    stack.callback(program.feed.close)
    next_update = 0
    notes: dict[str, Any] = {
        "precision": program.precision.description,
        "recipe": {name: value for name, value in wanted.items() if name != "device"},
    }

    def run(steps: int) -> None:
        nonlocal next_update
        next_update = program.execute(next_update, next_update + steps, goes_on=lambda _: True)
        notes["capture"] = program.capture_status
        notes["compiled"] = program.compiled.is_on
        notes["problems"] = program.compiled.problems

    return Contender(run=run, device=device, warm_up=2 * WARM_UP, notes=notes, close=stack.close)


def _builds(case: Case, device: torch.device, wanted: list[str]) -> Iterator[tuple[str, Build]]:
    makers: dict[str, Callable[[Case, torch.device], Contender]] = {
        "eager": build_eager,
        "captured": build_captured,
        "drivetrain": build_drivetrain,
    }
    for name in wanted:
        if name in makers:
            yield name, partial(makers[name], case, device)
        elif case.kind == "resnet50":
            peer = build_timm if name == "timm" else build_lightning
            yield name, partial(peer, batch=case.batch, size=case.size, device=device)


def main() -> None:
    args = read_options(__doc__, cases=list(CASES), contenders=CONTENDERS)
    device: torch.device = args.device
    for name in args.cases:
        case = _tiny(CASES[name]) if args.tiny else CASES[name]
        print(f"{name}: batch {case.batch}, size {case.size}", flush=True)
        built: dict[str, Contender] = {}
        builds = {key: _kept(key, build, built) for key, build in _builds(case, device, args.contenders)}
        found: dict[str, Any] = {"batch": case.batch, "size": case.size}
        contenders = compare(builds, images=case.batch, seconds=args.seconds, repeats=args.repeats)
        found |= {"contenders": contenders, "shares": shares(contenders, own="drivetrain")}
        if args.profile and "drivetrain" in built:
            found["profile"] = profile_steps(built["drivetrain"])
            print(profile_text(found["profile"]), flush=True)
        keep(Path(args.output), case=name, found=found, device=str(device))
        for contender in built.values():
            contender.close()
        built.clear()
        builds.clear()


def _kept(name: str, build: Build, built: dict[str, Contender]) -> Build:
    def make() -> Contender:
        built[name] = build()
        return built[name]

    return make


if __name__ == "__main__":
    main()
