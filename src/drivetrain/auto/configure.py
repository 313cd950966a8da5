"""From typed options to a recipe: recognises a folder, and lets rules choose what was not typed."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drivetrain.auto.applies import refuse_without_rules, rules_apply
from drivetrain.auto.budget import DEFAULT_BUDGET, planned_s
from drivetrain.auto.earlier_run import plain_run
from drivetrain.auto.trained_network import network_of_weights
from drivetrain.catalogue.data_sets import is_folder_of_files
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.finding.find import find_data
from drivetrain.data.finding.found_data import FoundData
from drivetrain.data.fingerprint.duplicates_text import copies_sentence
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.models.libraries.taken_over import take_over
from drivetrain.recipe.load import ResolvedRecipe, read_recipe_yaml, resolve_recipe
from drivetrain.recipe.merging import Setting, layer_of
from drivetrain.recipe.messages import COMMAND_LINE
from drivetrain.recipe.schema import Recipe, field_note
from drivetrain.store.directory import DEFAULT_PARENT

__all__ = ["Asked", "Rules", "configure", "typed_by_field"]

# What starting and ending a training takes besides its updates and validations.
_RESERVE_S, _RESERVE_SHARE = 4.0, 0.05
_LEAST_LEFT_SHARE = 0.3
_OF_WEIGHTS = "the weights to start from belong to this network, and to images normalised like this"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a command lets rules choose options.

    `stored_recipe` gives the recipe of the run in a directory, if the command would continue it. `ranks` is
    the number of processes that a launcher started. With `splits_budget`, the folds of a cross-validation
    share the budget. `check` refuses a recipe that the command cannot run, before anything is measured.
    """

    stored_recipe: Callable[[Path], Path | None] = lambda _: None
    ranks: int = 1
    is_quiet: bool = False
    splits_budget: bool = False
    began_s: float | None = None
    check: Callable[[Recipe], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command was asked: typed options, the named recipe, the recipe of a run that it continues.

    Without `rules`, the command takes the plain defaults for what was not typed.
    """

    overrides: Mapping[str, Any]
    config: str | None = None
    config_path: str | Path | None = None
    base: Mapping[str, Any] | None = None
    rules: Rules | None = None
    has_python_parts: bool = False

    @property
    def names_recipe(self) -> bool:
        return self.config is not None or self.config_path is not None


def typed_by_field(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Typed values by field, as an option may have several names."""
    settings = [Setting(key, value, COMMAND_LINE) for key, value in overrides.items()]
    return dict(layer_of(settings, may_repeat=True).values) if settings else {}


def configure(asked: Asked, *, reporter: Callable[[Recipe], Reporter]) -> ResolvedRecipe:
    """The recipe of a command. Rules are applied once; a run that continues keeps what they chose."""
    began_s = time.time()
    found, overrides = _with_found(asked)
    plain = _noted(
        resolve_recipe(
            config=asked.config, config_path=asked.config_path, overrides=overrides, base=asked.base
        ),
        found,
    )
    if asked.base is not None:
        _check_continued(plain, asked.base)
        return plain
    applies = rules_apply(
        plain.recipe,
        plain.origins,
        names_recipe=asked.names_recipe,
        was_found=found is not None,
        has_python_parts=asked.has_python_parts,
    )
    if asked.rules is None:
        why = "rules choose options for train, crossval and plan alone"
        refuse_without_rules(plain.recipe, plain.origins, why=why)
    if not applies or asked.rules is None:
        return plain
    path = _default_path(plain, overrides)
    stored = _earlier(plain, path, asked.rules, was_found=found is not None)
    if stored is not None:
        base = read_recipe_yaml(stored)
        continued = resolve_recipe(overrides={**overrides, "output_dir": str(stored.parent)}, base=base)
        _check_continued(continued, base)
        return _noted(continued, found)
    asked.rules.check(plain.recipe)
    _require_one_process(asked.rules, plain.recipe)
    _require_no_timing(plain.recipe)
    with reporter(plain.recipe) as shown:
        began_s = asked.rules.began_s or began_s
        left_s = _clock(plain.recipe, began_s=began_s, trainings=_trainings(plain.recipe, asked.rules))
        decided = _decided(plain, overrides, path=path, reporter=shown, left_s=left_s)
    return replace(decided, notes=(*plain.notes, *decided.notes))


def _earlier(plain: ResolvedRecipe, path: Path, rules: Rules, *, was_found: bool) -> Path | None:
    """The stored recipe of the run that the same command began, under rules or under the plain defaults."""
    recipe = plain.recipe
    if recipe.overwrite:
        return None
    stored = rules.stored_recipe(path)
    # Before there were rules, a folder needed --dataset, and neither --auto nor --budget existed.
    asks_for_rules = was_found or recipe.budget is not None or recipe.auto == "on"
    if stored is None and recipe.output_dir is None and not asks_for_rules:
        earlier = plain_run(plain)
        return None if earlier is None else rules.stored_recipe(earlier)
    return stored


def _with_found(asked: Asked) -> tuple[FoundData | None, dict[str, Any]]:
    """Recognises --data-dir where no data set was named."""
    overrides = typed_by_field(asked.overrides)
    data_dir = overrides.get("data_dir")
    if data_dir is None or "dataset" in overrides or asked.names_recipe:
        return None, overrides
    known = None if asked.base is None else str(asked.base["dataset"])
    found = find_data(Path(str(data_dir)), dataset=known, options=overrides)
    options = {field: value for field, value in found.options.items() if field not in overrides}
    return found, {**overrides, "dataset": found.dataset, "data_dir": str(found.data_dir), **options}


def _noted(resolved: ResolvedRecipe, found: FoundData | None) -> ResolvedRecipe:
    """The recipe with what its library brings along, and with what was found in the folder."""
    notes = () if found is None else (found.sentence, *found.left_out)
    return replace(take_over(resolved), notes=notes)


def _check_continued(resolved: ResolvedRecipe, base: Mapping[str, Any]) -> None:
    """Refuses other rules and another budget for a run that has begun: its options are chosen."""
    recipe, begun = resolved.recipe, _begun_budget(base)
    if base.get("budget") != recipe.budget and begun != (recipe.budget or DEFAULT_BUDGET):
        how = "without a budget" if begun is None else f"with --budget {begun}"
        raise BadInputError(
            f"--budget {recipe.budget} has no effect on a run that has begun {how}; name another "
            "--output-dir, or give --num-epochs N to train longer."
        )
    if base.get("auto", "auto") != recipe.auto:
        raise BadInputError(
            f"--auto {recipe.auto} has no effect on a run that has begun; leave it out, or name another "
            "--output-dir."
        )


def _begun_budget(base: Mapping[str, Any]) -> str | None:
    """The budget for which rules chose the options of a run; None if they did not, or for --max-time."""
    if base.get("budget") is not None:
        return str(base["budget"])
    if "budget" not in base or base["auto"] == "off" or base["max_time"] is not None:
        return None
    is_own = base["auto"] == "on" or is_folder_of_files(str(base["dataset"]))
    return DEFAULT_BUDGET if is_own else None


def _require_one_process(rules: Rules, recipe: Recipe) -> None:
    if rules.ranks > 1:
        data = recipe.data_dir or f"--dataset {recipe.dataset} --auto on"
        raise BadInputError(
            f"{rules.ranks} processes cannot each choose options by rules, as their times would differ; let "
            f"one choose with `drivetrain plan {data} --replicas {recipe.replicas} --save-recipe "
            "recipe.yaml` and your other options, then start all with --config-path recipe.yaml."
        )


def _default_path(plain: ResolvedRecipe, overrides: Mapping[str, Any]) -> Path:
    """The run directory: the same typed options find the same one, however fast the machine is."""
    if plain.recipe.output_dir is not None:
        return Path(plain.recipe.output_dir)
    folder = Path(str(plain.recipe.data_dir or plain.recipe.dataset)).resolve()
    kept = {
        name: str(value)
        for name, value in overrides.items()
        if not field_note(name).may_change or name in ("budget", "auto")
    }
    text = json.dumps({**kept, "data_dir": str(folder)}, sort_keys=True)
    return DEFAULT_PARENT / f"{folder.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _decided(
    plain: ResolvedRecipe,
    overrides: Mapping[str, Any],
    *,
    path: Path,
    reporter: Reporter,
    left_s: Callable[[], float],
) -> ResolvedRecipe:
    """Looks at data and device, and resolves the recipe again with what the rules chose."""
    # Bad input is refused before torch is imported, which is slow.
    from drivetrain.auto.choose import choose_by_rules

    typed = {
        field: getattr(plain.recipe, field)
        for field, origin in plain.origins.items()
        if origin == COMMAND_LINE
    }
    of_weights = network_of_weights(typed, dataset=plain.recipe.dataset)
    fingerprint, case = choose_by_rules(
        plain.recipe,
        typed={**typed, **of_weights},
        overrides={**overrides, **of_weights},
        left_s=left_s,
        reporter=reporter,
    )
    decided = of_weights | {field: decision.value for field, decision in case.decisions.items()}
    resolved = resolve_recipe(overrides=overrides, decided={**decided, "output_dir": str(path)})
    return replace(
        take_over(resolved),
        reasons=dict.fromkeys(of_weights, _OF_WEIGHTS)
        | {field: decision.reason for field, decision in case.decisions.items()},
        fingerprint=fingerprint.as_json(),
        notes=_worries(fingerprint) if _holds_out(resolved.recipe) else (),
    )


def _require_no_timing(recipe: Recipe) -> None:
    """Refuses to let rules choose if nothing may depend on measured times."""
    if recipe.deterministic:
        raise BadInputError(
            "--deterministic lets no measured time decide, but rules time networks before they choose one; "
            "--auto off takes the plain defaults, or train once without --deterministic and give its "
            "recipe.yaml to --config-path."
        )


def _holds_out(recipe: Recipe) -> bool:
    return recipe.folds is not None or recipe.validation_fraction != 0


def _worries(found: Fingerprint) -> tuple[str, ...]:
    """What the owner of the data should know about a share that is held out of them."""
    groups = None if found.suggested_groups is None else found.suggested_groups.sentence
    return tuple(sentence for sentence in (groups, copies_sentence(found)) if sentence is not None)


def _trainings(recipe: Recipe, rules: Rules) -> int:
    """How many trainings share the budget."""
    return recipe.folds or 1 if rules.splits_budget and recipe.fold is None else 1


def _clock(recipe: Recipe, *, began_s: float, trainings: int) -> Callable[[], float]:
    """The seconds that are left for one training itself."""
    seconds = planned_s(recipe.budget, max_time=recipe.max_time)
    ends_s = began_s + seconds * (1 - _RESERVE_SHARE) - _RESERVE_S * trainings
    return lambda: max(ends_s - time.time(), seconds * _LEAST_LEFT_SHARE) / trainings
