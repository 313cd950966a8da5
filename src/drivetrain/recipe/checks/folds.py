"""The rules for options that divide samples: --folds, --fold, --fold-scheme, --group-by and others."""

import re

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import nearest_name
from drivetrain.recipe.given import Given
from drivetrain.recipe.params import GROUP_WAYS
from drivetrain.recipe.schema import Recipe

# These published schemes hold out a fixed fifth of a shuffled order, so they always have 5 folds.
_SCHEMES_OF_FIVE = ("nvidia", "habana")


def check_folds(given: Given) -> None:
    """--fold must be one of --folds, and --folds excludes --validation-fraction."""
    recipe = given.recipe
    if recipe.fold is not None and recipe.folds is None:
        raise BadInputError(
            f"{given.option('fold')} needs the number of folds; add --folds {max(5, recipe.fold + 1)}."
        )
    if recipe.fold is not None and recipe.folds is not None and recipe.fold >= recipe.folds:
        raise BadInputError(
            f"{given.option('fold')} does not exist with {given.option('folds')}, as folds are numbered from "
            f"0 to {recipe.folds - 1}; --fold {recipe.folds - 1} works."
        )
    if _fraction_is_idle(given) and not given.is_overruled("validation_fraction", by="folds"):
        raise BadInputError(
            f"{given.option('folds')} and {given.option('validation_fraction')} cannot both be given, as "
            "each chooses the validation samples; leave one out."
        )
    _check_scheme(given)
    _check_split_scheme(given)
    _check_groups(given)


def _check_scheme(given: Given) -> None:
    """--fold-scheme needs --folds; in a recipe file it may stand alone, for a later `crossval`."""
    recipe = given.recipe
    is_wanted_now = given.is_typed("fold_scheme") or (not given.origins and given.is_asked("fold_scheme"))
    if recipe.folds is None and is_wanted_now:
        raise BadInputError(f"{given.option('fold_scheme')} has no effect without folds; add --folds 5.")
    if recipe.folds not in (None, 5) and recipe.fold_scheme in _SCHEMES_OF_FIVE:
        raise BadInputError(
            f"{given.option('folds')} is impossible with {given.option('fold_scheme')}, which always has 5 "
            "folds; --folds 5 works."
        )


def _check_split_scheme(given: Given) -> None:
    """Folds are stratified anyway, so only a stratified share is refused beside them, where it was typed."""
    if given.recipe.folds is not None and given.is_typed("split_scheme"):
        raise BadInputError(
            f"{given.option('split_scheme')} has no effect with {given.option('folds')}, as every fold has "
            "its share of each class; leave it out."
        )


def _check_groups(given: Given) -> None:
    """--group-by must name a way or be a regular expression with one group."""
    recipe = given.recipe
    if recipe.group_by is None:
        return
    if recipe.folds is not None and recipe.fold_scheme != "disjoint":
        raise BadInputError(
            f"{given.option('fold_scheme')} has folds of its own, which {given.option('group_by')} cannot "
            "change; --fold-scheme disjoint works."
        )
    if recipe.group_by in GROUP_WAYS:
        return
    works = nearest_name(recipe.group_by, GROUP_WAYS) or GROUP_WAYS[0]
    try:
        groups = re.compile(recipe.group_by).groups
    except re.error as error:
        raise BadInputError(
            f"{given.option('group_by')} is no regular expression ({error}); --group-by {works} works."
        ) from None
    if groups != 1:
        raise BadInputError(
            f"{given.option('group_by')} is neither {', '.join(GROUP_WAYS[:-1])} or {GROUP_WAYS[-1]} nor a "
            f"regular expression with one group in parentheses; --group-by {works} works."
        )


def warn_of_idle_fraction(given: Given) -> str | None:
    """Warns that --folds replaces the validation fraction of a recipe."""
    if not _fraction_is_idle(given):
        return None
    return f"{given.option('validation_fraction')} has no effect with {given.option('folds')}."


def require_fold(recipe: Recipe) -> None:
    """A single training needs the fold to validate on; only `crossval` trains all folds."""
    if recipe.folds is not None and recipe.fold is None:
        raise BadInputError(
            f"--folds {recipe.folds} needs the fold to validate on, such as --fold 0; `drivetrain crossval` "
            "trains all folds."
        )


def require_one_training(recipe: Recipe) -> None:
    """Refuses options that only `crossval` can use."""
    if recipe.parallel_folds > 1:
        raise BadInputError(
            f"--parallel-folds {recipe.parallel_folds} is only for crossval, as train trains one fold; leave "
            "it out."
        )


def require_one_fold(recipe: Recipe) -> None:
    """What a single training needs of the options of folds, before anything is opened."""
    require_one_training(recipe)
    require_fold(recipe)


def require_crossval(recipe: Recipe) -> None:
    """Checks the options of a cross-validation, which trains and validates every fold."""
    if recipe.folds is None:
        raise BadInputError("crossval needs the number of folds; --folds 5 works.")
    if recipe.fold is not None:
        raise BadInputError(
            f"--fold {recipe.fold} has no effect in crossval, which trains every fold; leave it out, or use "
            "`drivetrain train`."
        )
    for option, value in (("--training", recipe.training), ("--validation", recipe.validation)):
        if not value:
            raise BadInputError(f"crossval trains and validates every fold; leave out {option} False.")


def _fraction_is_idle(given: Given) -> bool:
    return given.recipe.folds is not None and given.recipe.validation_fraction is not None
