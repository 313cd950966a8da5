"""What the search finds in a model, against what the model as one stage keeps."""

from drivetrain.pipeline.cutting.cut import cut_model
from drivetrain.pipeline.memory.stage_memory import stage_activation_bytes
from drivetrain.planner.search.subject import Subject, subject_of
from drivetrain.recipe.load import resolve_recipe


def _subject(model: str, **options: object) -> Subject:
    values = {"model": model, "dataset": "synthetic", "dataset_size": 64, "micro_batch_size": 4, **options}
    return subject_of(resolve_recipe(overrides=values))


def test_kept_tensors_of_all_layers_are_those_of_the_model() -> None:
    subject = _subject("toy_model", device="cpu")
    traced = subject.traced.on(subject.trained)
    whole = cut_model(traced, stage_of=[0] * len(traced.layers)).stages[0]
    each = stage_activation_bytes(whole, {"images": subject.images}, compute_dtype=subject.compute_dtype)
    kept = subject.memory.kept
    assert sum(tensor.num_bytes for tensor in kept) == each.saved_bytes > 0
    without_one = sum(tensor.num_bytes for tensor in kept[1:])
    assert without_one != each.saved_bytes


def test_every_layer_is_known() -> None:
    subject = _subject("cifar_resnet8", device="cpu")
    names = {layer.node.name for layer in subject.traced.layers}
    assert names <= set(subject.memory.value_bytes)
    assert {tensor.saver for tensor in subject.memory.kept} <= names
