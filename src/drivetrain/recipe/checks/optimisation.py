"""The rules for the optimiser, the learning-rate schedule and their parameters."""

from collections.abc import Mapping, Sequence

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.fields import option_name
from drivetrain.recipe.given import Given
from drivetrain.recipe.params import COMPLETE_OPTIMIZERS, OPTIMIZER_KEYS, SCHEDULE_KEYS

_LARS_EXAMPLE = (
    '--optimizer-params \'{"momentum": 0.9, "weight_decay": 0.00005, "eeta": 0.001, "epsilon": 0}\' works'
)
_STEPPED_EXAMPLE = '--lr-schedule-params \'{"boundaries": [2, 4], "values": [0.1, 0.01, 0.001]}\' works'


def check_optimizer(given: Given) -> None:
    """The parameters must belong to the optimiser and be complete; Adam and LARS refuse --weight-decay."""
    _check_keys(given, choice="optimizer", params="optimizer_params", keys=OPTIMIZER_KEYS)
    _check_complete(given)
    _check_epsilon(given)
    if given.recipe.optimizer == "lars" and given.recipe.weight_decay > 0:
        raise BadInputError(
            f"{given.option('weight_decay')} is decoupled weight decay, which {given.option('optimizer')} "
            "does not have; set weight_decay in --optimizer-params instead."
        )
    if given.recipe.optimizer == "adam" and given.recipe.weight_decay > 0:
        raise BadInputError(
            f"{given.option('weight_decay')} is decoupled weight decay, which {given.option('optimizer')} "
            f"does not have; use --optimizer adamw, or --l2-regularization {given.recipe.weight_decay}."
        )


def check_lr_schedule(given: Given) -> None:
    """The parameters must belong to the schedule; a stepped schedule needs boundaries and values."""
    _check_keys(given, choice="lr_schedule", params="lr_schedule_params", keys=SCHEDULE_KEYS)
    if given.recipe.lr_schedule == "stepped":
        _check_steps(given)


def check_learning_rate(given: Given) -> None:
    """--learning-rate and initial_learning_rate both set the peak, so only one may be given."""
    if given.recipe.learning_rate is None:
        return
    if given.recipe.lr_schedule_params.initial_learning_rate is not None:
        raise BadInputError(
            f"{given.option('learning_rate')} and initial_learning_rate "
            f"in {given.option('lr_schedule_params')} cannot both be given; leave one out."
        )


def warn_of_idle_staircase(given: Given) -> str | None:
    """Warns that --lr-staircase does nothing for a constant rate without warm-up."""
    recipe = given.recipe
    if not recipe.lr_staircase or recipe.lr_schedule != "const" or recipe.lr_warmup_params is not None:
        return None
    return f"{given.option('lr_staircase')} has no effect with {given.option('lr_schedule')} and no warm-up."


def warn_of_long_warmup(given: Given) -> str | None:
    """Warns if the warm-up lasts the whole training, so that the peak is never reached."""
    warmup = given.recipe.lr_warmup_params
    if warmup is None or warmup.warmup_epochs < given.recipe.num_epochs:
        return None
    return (
        f"{given.option('lr_warmup_params')} lasts as long as {given.option('num_epochs')}: "
        "the learning rate will not reach its peak."
    )


def warn_of_long_head_start(given: Given) -> str | None:
    """Warns if only the head is trained all the time, which `--freeze backbone` does at less cost."""
    recipe = given.recipe
    if not recipe.head_first_epochs or recipe.head_first_epochs < recipe.num_epochs:
        return None
    return (
        f"{given.option('head_first_epochs')} lasts as long as {given.option('num_epochs')}: only the head "
        "will be trained; --freeze backbone does the same faster."
    )


def warn_of_rate_from_scratch(given: Given) -> str | None:
    """Warns of weights from elsewhere at the default rate of SGD, which soon destroys what they know."""
    recipe = given.recipe
    start = "init_from" if recipe.init_from is not None else "pretrained" if recipe.pretrained else None
    if start is None or recipe.optimizer != "sgd" or recipe.lr_schedule == "stepped":
        return None
    if recipe.learning_rate is not None or recipe.lr_schedule_params.initial_learning_rate is not None:
        return None
    return (
        f"{given.option(start)} starts from trained weights, but the learning rate is the default for "
        "training from scratch, at which they are soon forgotten; --config fine_tune has settings that suit, "
        "or --learning-rate 0.01 sets a lower rate."
    )


def _check_keys(given: Given, *, choice: str, params: str, keys: Mapping[str, Sequence[str]]) -> None:
    chosen = str(given.value(choice))
    for key in given.value(params):
        if key not in keys[chosen]:
            owners = [name for name, own in keys.items() if key in own]
            raise BadInputError(
                f"{key} in {given.option(params)} does not belong to {given.option(choice)}, whose keys are "
                f"{', '.join(keys[chosen])}; leave it out, or use {option_name(choice)} {owners[0]}."
            )


def _check_complete(given: Given) -> None:
    chosen = given.recipe.optimizer
    found = given.value("optimizer_params")
    missing = [key for key in OPTIMIZER_KEYS[chosen] if key not in found]
    if chosen in COMPLETE_OPTIMIZERS and missing:
        raise BadInputError(
            f"{given.option('optimizer')} needs {', '.join(missing)} in --optimizer-params; {_LARS_EXAMPLE}."
        )


def _check_epsilon(given: Given) -> None:
    if given.recipe.optimizer in ("adam", "adamw", "rmsprop") and given.recipe.optimizer_params.epsilon == 0:
        raise BadInputError(
            f"epsilon of --optimizer-params is 0, for {given.option('optimizer')} it must be more than 0; "
            "--optimizer-params '{\"epsilon\": 1e-08}' works."
        )


def _check_steps(given: Given) -> None:
    params = given.recipe.lr_schedule_params
    if params.boundaries is None or params.values is None:
        raise BadInputError(f"{given.option('lr_schedule')} needs boundaries and values; {_STEPPED_EXAMPLE}.")
    subject = given.option("lr_schedule_params")
    if len(params.values) != len(params.boundaries) + 1:
        raise BadInputError(
            f"{subject} has {len(params.values)} values for {len(params.boundaries)} boundaries, "
            f"but it needs one more value than boundaries; {_STEPPED_EXAMPLE}."
        )
    if any(
        later <= earlier for earlier, later in zip((0.0, *params.boundaries), params.boundaries, strict=False)
    ):
        raise BadInputError(f"{subject}: boundaries must be ascending epochs above 0; {_STEPPED_EXAMPLE}.")
    if min(params.values) < 0 or max(params.values) == 0:
        raise BadInputError(f"{subject}: values must be rates of at least 0, not all 0; {_STEPPED_EXAMPLE}.")
