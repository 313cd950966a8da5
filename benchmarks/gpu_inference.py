"""Inference of the U-Net (572 -> 388) on one accelerator: drivetrain's, and two by hand, in one process.

    python benchmarks/gpu_inference.py --cases unet-1 unet-16 --output FILE.json [--profile]
    python benchmarks/gpu_inference.py --device cpu --tiny --seconds 1 --output FILE.json   # to try it

- eager: bfloat16 weights, channels_last, plain PyTorch.
- captured: the same compiled, and one call a CUDA graph that is replayed.
- drivetrain: `build_inference` of a recipe's model, compiled; its images are float32, as users have them.

From images on the device to logits there. Contenders take turns; what counts is the median of the repeats.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_networks import make_work
from gpu_turns import Contender, compare, keep, profile_steps, profile_text, read_options, shares
from torch import Tensor

CONTENDERS = ("eager", "captured", "drivetrain")
CASES = {"unet-1": 1, "unet-2": 2, "unet-16": 16}
SIZE, WIDTH = 388, 64
TINY_SIZE, TINY_WIDTH = 20, 2
WARM_UP = 4


def _looped(forward: Callable[[Tensor], Tensor], images: Tensor) -> Callable[[int], None]:
    @torch.inference_mode()
    def run(steps: int) -> None:
        for _ in range(steps):
            forward(images)

    return run


def _by_hand(batch: int, *, tiny: bool, device: torch.device) -> tuple[torch.nn.Module, Tensor]:
    size, width = (TINY_SIZE, TINY_WIDTH) if tiny else (SIZE, WIDTH)
    work = make_work("unet", batch=batch, size=size, width=width, device=device)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    return work.model.eval().to(dtype), work.images.to(dtype)


def build_eager(batch: int, *, tiny: bool, device: torch.device) -> Contender:
    model, images = _by_hand(batch, tiny=tiny, device=device)
    return Contender(run=_looped(model, images), device=device)


def build_captured(batch: int, *, tiny: bool, device: torch.device) -> Contender:
    """Elsewhere than on CUDA there is nothing to capture, and what is timed is the eager network."""
    model, images = _by_hand(batch, tiny=tiny, device=device)
    if device.type != "cuda":
        return Contender(run=_looped(model, images), device=device, notes={"captured": False})
    compiled = torch.compile(model, dynamic=False)
    aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(aside):
        _looped(compiled, images)(WARM_UP)
    torch.cuda.current_stream(device).wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        compiled(images)

    def run(steps: int) -> None:
        for _ in range(steps):
            graph.replay()

    return Contender(run=run, device=device, notes={"captured": True}, kept=(compiled, images))


def build_drivetrain(batch: int, *, tiny: bool, device: torch.device) -> Contender:
    """The model of a recipe, as `bench infer` and `predict --compile on` have it."""
    from drivetrain.assembly.prepared_model import place_model
    from drivetrain.bench.generated import generated_spec
    from drivetrain.devices.device import choose_device
    from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
    from drivetrain.inference.model.optimised import build_inference, declined_recordings
    from drivetrain.models.from_recipe import rebuild_model
    from drivetrain.passes.forward import choose_precision
    from drivetrain.recipe.load import resolve_recipe

    size, width = (TINY_SIZE, TINY_WIDTH) if tiny else (SIZE, WIDTH)
    wanted = {"model": "unet", "dataset": "isbi2012", "image_size": size, "model_width": width}
    resolved = resolve_recipe(overrides={**wanted, "device": str(device)})
    own_device = choose_device(str(device))
    precision = choose_precision(resolved.recipe, own_device)
    model = place_model(rebuild_model(resolved.recipe, generated_spec(resolved)), own_device)
    folded = fold_batch_norm(model).model
    forward = build_inference(folded, precision=precision, compiles=device.type != "cpu")
    images = make_work("unet", batch=batch, size=size, width=width, device=device).images
    notes: dict[str, Any] = {"precision": precision.description, "recipe": wanted}
    declined_before = declined_recordings()
    looped = _looped(forward, images)

    def run(steps: int) -> None:
        looped(steps)
        notes["captured"] = device.type == "cuda" and declined_recordings() == declined_before

    return Contender(run=run, device=device, warm_up=WARM_UP, notes=notes)


def main() -> None:
    args = read_options(__doc__, cases=list(CASES), contenders=CONTENDERS)
    device: torch.device = args.device
    makers = {"eager": build_eager, "captured": build_captured, "drivetrain": build_drivetrain}
    for name in args.cases:
        batch = CASES[name]
        print(f"{name}: batch {batch}", flush=True)
        builds = {key: partial(makers[key], batch, tiny=args.tiny, device=device) for key in args.contenders}
        contenders = compare(builds, images=batch, seconds=args.seconds, repeats=args.repeats)
        found: dict[str, Any] = {"batch": batch, "contenders": contenders}
        found["shares"] = shares(contenders, own="drivetrain")
        if args.profile and "drivetrain" in builds:
            own = build_drivetrain(batch, tiny=args.tiny, device=device)
            own.run(WARM_UP)
            found["profile"] = profile_steps(own, steps=20)
            print(profile_text(found["profile"]), flush=True)
        keep(Path(args.output), case=name, found=found, device=str(device))


if __name__ == "__main__":
    main()
