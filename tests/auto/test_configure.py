"""From typed options to a recipe: when rules choose, that they choose once, what a continued run keeps."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drivetrain.auto.configure import Asked, Rules, configure
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.finding.found_data import FoundData
from drivetrain.data.fingerprint.fingerprint import Duplicates, Fingerprint
from drivetrain.recipe.checks.folds import require_crossval
from drivetrain.recipe.load import ResolvedRecipe, recipe_to_yaml, resolve_recipe
from drivetrain.recipe.messages import RULES, RUN_DIRECTORY
from tests.auto.fingerprints import decided, photographs


def _stored(path: Path) -> Path | None:
    recipe = path / "recipe.yaml"
    return recipe if recipe.is_file() else None


@dataclass
class _World:
    """A folder of photographs, and rules that need no data and no clock; counts how often they chose."""

    directory: Path
    chosen: list[Mapping[str, Any]] = field(default_factory=list)
    left_s: list[float] = field(default_factory=list)
    earlier: Path | None = None
    found: Fingerprint = field(default_factory=photographs)

    def find(self, directory: Path, *, dataset: str | None = None, **_: Any) -> FoundData:
        return FoundData(dataset=dataset or "image-folder", data_dir=directory, sentence="photographs")

    def choose(self, recipe: Any, *, typed: Mapping[str, Any], left_s: Any, **_: Any) -> Any:
        self.chosen.append(typed)
        self.left_s.append(left_s())
        # Another speed each time: a second choice would be another one.
        return self.found, decided(self.found, typed, pixel_s=1e-8 * 10 ** len(self.chosen))

    def ask(self, overrides: Mapping[str, Any] | None = None, **asked: Any) -> ResolvedRecipe:
        given = {"data_dir": str(self.directory)} if overrides is None else dict(overrides)
        rules = asked.pop("rules", Rules(stored_recipe=_stored))
        return configure(Asked(overrides=given, rules=rules, **asked), reporter=_quiet)

    def ask_folder(self, **options: Any) -> ResolvedRecipe:
        return self.ask({"data_dir": str(self.directory), **options})

    def begin(self, resolved: ResolvedRecipe) -> Path:
        """Writes what a run writes before its first update."""
        path = Path(str(resolved.recipe.output_dir))
        path.mkdir(parents=True)
        (path / "recipe.yaml").write_text(recipe_to_yaml(resolved.recipe, reasons=resolved.reasons))
        return path


def _quiet(_recipe: Any) -> Reporter:
    return Reporter(quiet=True)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _World:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    made = _World(tmp_path / "photos")
    monkeypatch.setattr("drivetrain.auto.configure.find_data", made.find)
    monkeypatch.setattr("drivetrain.auto.choose.choose_by_rules", made.choose)
    monkeypatch.setattr("drivetrain.auto.configure.plain_run", lambda _: made.earlier)
    return made


def test_rules_choose_what_was_not_typed(world: _World) -> None:
    resolved = world.ask_folder(learning_rate="0.3")
    assert (resolved.recipe.dataset, resolved.recipe.learning_rate) == ("image-folder", 0.3)
    assert resolved.recipe.model == "resnet18"
    assert resolved.origins["model"] == RULES
    assert set(resolved.reasons) >= {"model", "num_epochs", "optimizer", "weight_decay"}
    assert "learning_rate" not in resolved.reasons
    assert resolved.fingerprint == photographs().as_json()
    assert resolved.notes == ("photographs",)
    assert world.chosen[0]["learning_rate"] == 0.3


def test_copies_are_noted_where_images_are_held_out(world: _World) -> None:
    world.found = photographs(copies_in_train=Duplicates(count=6, first=(("a.jpg", "b.jpg"),)))
    assert world.ask_folder().notes[1].startswith("6 images have an exact copy, such as a.jpg and b.jpg;")
    assert world.ask_folder(validation_fraction="0").notes == ("photographs",)


def test_an_option_that_was_typed_as_none_is_typed(world: _World) -> None:
    resolved = world.ask_folder(image_size="none")
    assert resolved.recipe.image_size is None
    assert "image_size" not in resolved.reasons


def test_the_same_options_find_the_same_directory(world: _World) -> None:
    first = world.ask_folder(budget="10m").recipe.output_dir
    assert world.ask_folder(budget="10m").recipe.output_dir == first
    assert Path(str(first)).name.startswith("photos-")
    others = [{}, {"budget": "20m"}, {"budget": "10m", "seed": "1"}, {"budget": "10m", "optimizer": "adam"}]
    assert first not in [world.ask_folder(**options).recipe.output_dir for options in others]
    # A run may be continued with these.
    for options in ({"num_epochs": "7"}, {"device": "cpu"}, {"verbosity": "quiet"}):
        assert world.ask_folder(budget="10m", **options).recipe.output_dir == first


def test_the_same_command_keeps_what_was_chosen(world: _World) -> None:
    first = world.ask_folder(budget="10m")
    world.begin(first)
    again = world.ask_folder(budget="10m")
    assert len(world.chosen) == 1
    assert again.recipe == first.recipe
    assert again.origins["model"] == RUN_DIRECTORY
    longer = world.ask_folder(budget="10m", num_epochs="1000")
    assert longer.recipe == first.recipe.model_copy(update={"num_epochs": 1000})
    assert len(world.chosen) == 1


def test_a_kill_before_the_recipe_was_written_chooses_again(world: _World) -> None:
    first = world.ask_folder()
    Path(str(first.recipe.output_dir)).mkdir(parents=True)
    again = world.ask_folder()
    assert len(world.chosen) == 2
    assert again.recipe.output_dir == first.recipe.output_dir


def test_overwrite_chooses_again(world: _World) -> None:
    world.begin(world.ask_folder())
    assert world.ask_folder(overwrite="True").recipe.overwrite
    assert len(world.chosen) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": "20m"}, "--budget 20m has no effect on a run that has begun with --budget 10m"),
        ({"budget": "10m", "auto": "off"}, "--auto off has no effect on a run that has begun"),
    ],
)
def test_a_run_that_has_begun_refuses_other_rules(
    world: _World, options: Mapping[str, str], said: str
) -> None:
    begun = world.ask_folder(budget="10m", output_dir="runs/mine")
    base = dict(begun.recipe.model_dump(mode="json"))
    asked = {"data_dir": str(world.directory), "output_dir": "runs/mine"}
    assert world.ask({**asked, "budget": "10m"}, base=base).recipe.budget == "10m"
    with pytest.raises(BadInputError, match=said):
        world.ask({**asked, **options}, base=base)
    if "auto" not in options:
        world.begin(begun)
        with pytest.raises(BadInputError, match=said):
            world.ask({**asked, **options})


def test_auto_off_gives_the_plain_defaults(world: _World) -> None:
    plain = world.ask_folder(auto="off").recipe
    expected = resolve_recipe(
        overrides={"dataset": "image-folder", "data_dir": str(world.directory), "auto": "off"}
    )
    assert plain == expected.recipe
    assert world.chosen == []


def test_rules_that_time_networks_are_refused_where_no_measured_time_may_decide(world: _World) -> None:
    with pytest.raises(
        BadInputError, match=r"--deterministic lets no measured time decide.*--auto off takes"
    ):
        world.ask_folder(deterministic=True)
    assert world.chosen == []
    assert world.ask_folder(deterministic=True, auto="off").recipe.deterministic


@pytest.mark.parametrize(
    ("overrides", "asked"),
    [
        ({}, {}),
        ({"model": "cifar_resnet8"}, {}),
        ({"dataset": "cifar10", "data_dir": "photos"}, {}),
        ({"dataset": "digits", "num_epochs": "3"}, {}),
        ({"data_dir": "photos"}, {"config": "digits"}),
        ({"dataset": "image-folder", "data_dir": "photos"}, {"has_python_parts": True}),
        ({"dataset": "my_data:make"}, {}),
    ],
)
def test_named_recipes_and_data_sets_are_unchanged(
    world: _World, overrides: Mapping[str, str], asked: Mapping[str, Any]
) -> None:
    resolved = world.ask(overrides, **asked)
    plain = resolve_recipe(overrides=overrides, config=asked.get("config"))
    assert resolved == plain
    assert world.chosen == []


def test_auto_on_applies_rules_to_a_published_data_set(world: _World) -> None:
    assert world.ask({"dataset": "cifar10", "data_dir": "photos", "auto": "on"}).reasons
    assert len(world.chosen) == 1


def test_a_folder_with_its_data_set_named_is_the_users_own_too(world: _World) -> None:
    assert world.ask({"dataset": "image-folder", "data_dir": "photos"}).reasons


def test_runs_begun_under_the_old_defaults_continue(world: _World) -> None:
    named = {"dataset": "image-folder", "data_dir": "photos"}
    old = resolve_recipe(overrides={**named, "output_dir": "runs/image-folder-cifar_resnet8-12345678"})
    world.earlier = world.begin(old)
    assert world.ask(named).recipe == old.recipe
    assert world.chosen == []
    # No earlier command can have been one of these.
    for options in ({"data_dir": "photos"}, {**named, "budget": "10m"}, {**named, "auto": "on"}):
        assert world.ask(options).reasons
    assert len(world.chosen) == 3


def test_several_processes_do_not_choose_but_continue(world: _World) -> None:
    rules = Rules(stored_recipe=_stored, ranks=2)
    with pytest.raises(BadInputError, match=r"plan .*photos --replicas 2 --save-recipe recipe\.yaml"):
        world.ask({"data_dir": str(world.directory), "devices": "2"}, rules=rules)
    with pytest.raises(BadInputError, match=r"plan --dataset cifar10 --auto on --replicas 2 --save-recipe"):
        world.ask({"dataset": "cifar10", "auto": "on", "devices": "2"}, rules=rules)
    assert world.chosen == []
    begun = world.ask_folder()
    world.begin(begun)
    assert world.ask(rules=rules).recipe == begun.recipe


@pytest.mark.parametrize(
    ("options", "ago_s", "folds", "expected_s"),
    [
        ({"budget": "10000s"}, 0.0, False, 9496.0),
        ({"budget": "10000s"}, 5000.0, False, 4496.0),
        ({"budget": "10000s"}, 50_000.0, False, 3000.0),
        ({"max_time": "10000s"}, 0.0, False, 8546.0),
        ({"budget": "10000s", "max_time": "20000s"}, 0.0, False, 9496.0),
        ({"budget": "10000s", "folds": "5"}, 0.0, True, 1896.0),
        ({"budget": "10000s", "folds": "5", "fold": "0"}, 0.0, False, 9496.0),
        # A plan of a cross-validation, or of one of its trainings.
        ({"budget": "10000s", "folds": "5", "fold": "0"}, 0.0, True, 9496.0),
        ({}, 0.0, False, 851.0),
    ],
)
def test_the_clock_starts_with_the_command(
    world: _World, options: Mapping[str, str], ago_s: float, folds: bool, expected_s: float
) -> None:
    rules = Rules(splits_budget=folds, began_s=time.time() - ago_s)
    world.ask({"data_dir": str(world.directory), **options}, rules=rules)
    # What the test itself takes is subtracted.
    assert 0.5 * expected_s <= world.left_s[-1] <= expected_s


def test_the_default_budget_may_be_named(world: _World) -> None:
    base = dict(world.ask_folder(output_dir="runs/mine").recipe.model_dump(mode="json"))
    asked = {"data_dir": str(world.directory), "output_dir": "runs/mine"}
    assert world.ask({**asked, "budget": "normal"}, base=base).reasons == {}
    with pytest.raises(BadInputError, match="begun with --budget normal"):
        world.ask({**asked, "budget": "quick"}, base=base)
    before_rules = {name: value for name, value in base.items() if name not in ("budget", "auto")}
    for plain in (before_rules, {**base, "auto": "off"}, {**base, "dataset": "imagenet"}):
        given = {**asked, "dataset": plain["dataset"], "budget": "normal"}
        with pytest.raises(BadInputError, match="begun without a budget"):
            world.ask(given, base=plain)


@pytest.mark.parametrize("options", [{"budget": "10m"}, {"auto": "on"}])
def test_commands_without_rules_refuse_what_is_for_them(world: _World, options: dict[str, str]) -> None:
    with pytest.raises(BadInputError, match="has no effect here: rules choose options for train, crossval"):
        world.ask({"data_dir": str(world.directory), **options}, rules=None)
    assert world.ask({"data_dir": str(world.directory), "auto": "off"}, rules=None).recipe.auto == "off"


def test_what_the_command_cannot_run_is_refused_before_anything_is_measured(world: _World) -> None:
    with pytest.raises(BadInputError, match="--folds 5 works"):
        world.ask(rules=Rules(check=require_crossval))
    assert world.chosen == []
    folds = {"data_dir": str(world.directory), "folds": "5"}
    assert world.ask(folds, rules=Rules(check=require_crossval)).reasons
