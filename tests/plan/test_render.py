"""The plan as a person sees it."""

import io

from rich.console import Console

from drivetrain.optim.learning_rate import LearningRate, constant, cosine
from drivetrain.plan.render import _image_rows, _model_rows, print_plan, sparkline
from drivetrain.plan.training_plan import build_plan, plan_training
from drivetrain.recipe.load import resolve_recipe


def _rate(peak: float) -> LearningRate:
    return LearningRate(curve=cosine(peak, decay_updates=99), peak=peak, peak_origin="")


def _text(*, encoding: str = "utf-8") -> str:
    resolved = resolve_recipe(overrides={"dataset": "digits", "global_batch_size": 70})
    plan = build_plan(resolved, lr_at=[0, 300])
    training = plan_training(resolved.recipe, samples=plan["epoch"]["samples"])
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_plan(plan, learning_rate=training.learning_rate, console=Console(file=stream, width=80))
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_sparkline_falls_with_the_rate() -> None:
    line = sparkline(_rate(0.1), total_updates=100)
    assert (len(line), line[0], line[-1]) == (40, "█", "▁")
    assert list(line) == sorted(line, reverse=True)


def test_sparkline_of_extremes() -> None:
    assert sparkline(_rate(0.0), total_updates=3) == "▁▁▁"
    flat = LearningRate(curve=constant(0.3), peak=0.3, peak_origin="")
    assert sparkline(flat, total_updates=1) == "█"


def test_table_fits_80_columns_and_says_everything() -> None:
    text = _text()
    assert max(map(len, text.splitlines())) <= 80
    for part in ("64 samples per weight update", "1,438", "at update 300", "cifar_resnet8", "FLOP", "█"):
        assert part in text
    assert "warning: --global-batch-size 70" in text
    assert "\x1b" not in text


def test_table_without_unicode() -> None:
    text = _text(encoding="ascii")
    assert "##" in text


def test_a_model_with_a_margin_shows_what_goes_in_and_what_comes_out() -> None:
    plan = build_plan(
        resolve_recipe(overrides={"model": "unet", "dataset": "isbi2012", "image_size": 388}), lr_at=()
    )
    assert plan["input"] == {"channels": 1, "image_size": 388, "num_classes": 2, "margin": 92}
    rows = dict(_model_rows(plan))
    assert rows["input"] == "1x572x572"
    assert rows["output"] == "388x388, 2 classes"


def test_images_that_are_not_square_are_shown_with_both_sides() -> None:
    shape = {"channels": 3, "image_size": 360, "num_classes": 1}
    assert _image_rows(shape, margin=0) == [("input", "3x360x360, 1 class")]
    assert _image_rows({**shape, "width": 480}, margin=0) == [("input", "3x360x480, 1 class")]
    assert _image_rows({**shape, "width": 480}, margin=2) == [
        ("input", "3x364x484"),
        ("output", "360x480, 1 class"),
    ]
