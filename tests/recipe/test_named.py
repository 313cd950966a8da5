"""Named recipes, inheritance, and files that hold one recipe or many."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import ResolvedRecipe, resolve_recipe
from drivetrain.recipe.named import packaged_description, packaged_names
from drivetrain.recipe.params import OptimizerParams
from drivetrain.recipe.schema import Recipe


def _file(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def _resolve(path: Path, config: str | None = None) -> ResolvedRecipe:
    return resolve_recipe(config=config, config_path=path)


@pytest.mark.parametrize("name", packaged_names())
def test_every_packaged_recipe_resolves_without_a_warning(name: str) -> None:
    assert packaged_description(name)
    resolved = resolve_recipe(config=name)
    assert resolved.name == name
    assert resolved.warnings == ()


def test_packaged_names() -> None:
    assert packaged_names() == sorted(packaged_names())
    assert {"digits", "mnist_tutorial", "synthetic_smoke"} < set(packaged_names())


def test_digits_is_the_default() -> None:
    assert resolve_recipe(config="digits").recipe == Recipe()


def test_mnist_tutorial() -> None:
    recipe = resolve_recipe(config="mnist_tutorial").recipe
    assert (recipe.model, recipe.dataset, recipe.micro_batch_size, recipe.num_epochs) == (
        "mnist_cnn",
        "mnist",
        64,
        3,
    )
    assert (recipe.learning_rate, recipe.lr_schedule, recipe.optimizer) == (0.01, "const", "sgd")
    assert recipe.optimizer_params == OptimizerParams(momentum=0)


def test_inherited_values_keep_their_origin() -> None:
    origins = resolve_recipe(config="synthetic_smoke").origins
    assert origins["model"] == "recipe digits (digits.yaml:2)"
    assert origins["dataset"] == "recipe synthetic_smoke (synthetic_smoke.yaml:3)"
    assert origins["seed"] == "default"


def test_unknown_name_lists_the_names() -> None:
    with pytest.raises(BadInputError) as caught:
        resolve_recipe(config="digitz")
    assert str(caught.value) == (
        f"--config digitz is not a recipe. Did you mean digits? Available: {', '.join(packaged_names())}."
    )


@pytest.mark.parametrize("name", ["../digits", "/etc/passwd", "digits.yaml", ""])
def test_a_name_is_not_a_path(name: str) -> None:
    with pytest.raises(BadInputError, match="is not a recipe"):
        resolve_recipe(config=name)


def test_a_flat_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "inherits: mnist_tutorial\ndescription: mine\nbatch_size: 8\nlogs-per-epoch: 2\n")
    resolved = _resolve(path)
    assert (resolved.recipe.micro_batch_size, resolved.recipe.model) == (8, "mnist_cnn")
    assert resolved.recipe.logs_per_epoch == "2"
    assert resolved.origins["micro_batch_size"] == f"{path}:3"
    assert resolved.name == "mine"
    with pytest.raises(BadInputError, match="a single unnamed recipe; leave out --config"):
        _resolve(path, "mine")


def test_a_flat_file_with_a_mapping_alone(tmp_path: Path) -> None:
    path = _file(tmp_path, "optimizer-params: {momentum: 0.5}\n")
    assert _resolve(path).recipe.optimizer_params.momentum == 0.5


COLLECTION = """\
base: &base
  model-name: cifar_resnet20
  global-batch-size: 128
  optimizer-params: {momentum: 0.8}
merged:
  <<: *base
  gradient-accumulation-count: 2
child:
  inherits: merged
  seed: 7
from_package:
  inherits: mnist_tutorial
  num-epochs: 1
digits:
  inherits: digits
  seed: 3
"""


def test_a_file_of_recipes(tmp_path: Path) -> None:
    path = _file(tmp_path, COLLECTION)
    resolved = _resolve(path, "child")
    assert (resolved.recipe.model, resolved.recipe.seed) == ("cifar_resnet20", 7)
    assert resolved.origins["model"] == f"{path}:2"
    assert resolved.name == "child"
    assert _resolve(path, "from_package").recipe.model == "mnist_cnn"
    assert _resolve(path, "digits").recipe == Recipe(seed=3)


def test_own_keys_replace_what_a_merge_brings(tmp_path: Path) -> None:
    recipe = _resolve(_file(tmp_path, COLLECTION), "merged").recipe
    assert (recipe.gradient_accumulation_count, recipe.global_batch_size) == (2, None)
    assert recipe.optimizer_params.momentum == 0.8


def test_the_first_of_several_merged_mappings_wins(tmp_path: Path) -> None:
    text = "a: &a {seed: 1}\nb: &b {seed: 2, num-epochs: 3}\nc:\n  <<: [*a, *b]\n"
    recipe = _resolve(_file(tmp_path, text), "c").recipe
    assert (recipe.seed, recipe.num_epochs) == (1, 3)


def test_anchors_beside_the_recipes(tmp_path: Path) -> None:
    path = _file(tmp_path, "rate: &rate 0.25\nmine:\n  learning-rate: *rate\n")
    assert _resolve(path, "mine").recipe.learning_rate == 0.25


@pytest.mark.parametrize(
    ("text", "config", "part"),
    [
        (
            COLLECTION,
            None,
            "contains several recipes (base, merged, child, from_package, digits); choose one",
        ),
        (COLLECTION, "chid", "--config chid is not a recipe in {path}. Did you mean child?"),
        ("a: {inherits: b}\nb: {inherits: a}\n", "a", "{path}:2: b inherits a, which inherits it in turn"),
        ("a: {inherits: a}\n", "a", "{path}:1: a inherits a, which inherits it in turn"),
        ("a: {inherits: nothing}\n", "a", "{path}:1: inherits nothing is not a recipe"),
        ("inherits: [digits]\n", None, "{path}:1: inherits takes one recipe's name"),
        (
            "seed: 1\nmicro-batch-siz: 3\n",
            None,
            "{path}:2: micro-batch-siz is not an option. Did you mean micro-batch",
        ),
        ("seed: 1\non-demand: true\n", None, "{path}:2: --on-demand has no counterpart here"),
        ("seed: 1\nmicro-batch-size: 0\n", None, "{path}:2: --micro-batch-size is 0, it must be at least 1"),
        ("seed: x\n", None, "{path}:1: --seed is x, it must be a whole number; --seed 0 works."),
        ("seed: 1\nseed: 2\n", None, "{path}:2: seed is given twice, first on line 1"),
        (
            "seed: 1\nlr: 1\nlearning-rate: 2\n",
            None,
            "{path}:3: learning-rate sets --learning-rate a second time",
        ),
        ("- 1\n", None, "{path} does not contain a recipe"),
        ("", None, "{path} does not contain a recipe"),
        ("model: foo\n", None, "{path}:1: --model foo"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, text: str, config: str | None, part: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(BadInputError) as caught:
        _resolve(path, config)
    assert part.format(path=path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_file_must_be_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(BadInputError, match=r"^--config-path .* is not a file"):
            _resolve(path)
