"""Types of the recipe's fields: named choices, and the parameter mappings of optimisers and schedules."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from drivetrain.recipe.plain import exchange_target, loss_scale, lower_text, number_as_text, schedule_name

OptimizerName = Annotated[Literal["sgd", "adam", "adamw", "rmsprop", "lars"], BeforeValidator(lower_text)]
ScheduleName = Annotated[
    Literal["const", "cosine", "stepped", "polynomial", "exponential"], BeforeValidator(lower_text)
]
Remainder = Annotated[Literal["trim", "pad", "carry"], BeforeValidator(lower_text)]
Placement = Annotated[Literal["auto", "resident", "stream"], BeforeValidator(lower_text)]
BadSamplePolicy = Annotated[Literal["error", "skip"], BeforeValidator(lower_text)]
FoldScheme = Annotated[Literal["disjoint", "graphcore", "nvidia", "habana"], BeforeValidator(lower_text)]
SplitScheme = Annotated[Literal["random", "stratified"], BeforeValidator(lower_text)]
GROUP_WAYS = ("prefix", "folder", "file")
"""The values of --group-by that are no regular expressions."""
SegmentationLoss = Annotated[Literal["softmax", "sigmoid"], BeforeValidator(lower_text)]
PrecisionName = Annotated[Literal["auto", "32.32", "16.32", "16.16"], BeforeValidator(number_as_text)]
HalfType = Annotated[Literal["bfloat16", "float16"], BeforeValidator(lower_text)]
MemoryFormat = Annotated[Literal["auto", "channels_last", "contiguous"], BeforeValidator(lower_text)]
FlipDirection = Literal["horizontal", "vertical"]
RulesMode = Literal["auto", "on", "off"]
RandomFlips = Annotated[
    Literal["auto", "none", "horizontal", "vertical", "both"], BeforeValidator(lower_text)
]
InputChoice = Literal["auto", "image", "table", "signal"]
InputKindName = Annotated[InputChoice, BeforeValidator(lower_text)]
CaptureMode = Annotated[Literal["auto", "off"], BeforeValidator(lower_text)]
LossScaling = Annotated[float | Literal["dynamic"], BeforeValidator(loss_scale)]
CompileWord = Literal["auto", "on", "off"]
CompileMode = Annotated[CompileWord, BeforeValidator(lower_text)]
Verbosity = Annotated[Literal["quiet", "normal", "verbose"], BeforeValidator(lower_text)]
PipelineScheduleName = Annotated[
    Literal["sequential", "grouped", "1f1b", "gpipe", "zero-bubble"], BeforeValidator(schedule_name)
]
SplitBy = Annotated[Literal["cost", "parameters", "time"], BeforeValidator(lower_text)]
OptimiseFor = Annotated[Literal["speed", "balanced", "memory"], BeforeValidator(exchange_target)]
WarmupMode = Annotated[Literal["shift", "mask"], BeforeValidator(lower_text)]

# Upper limit of the loss scale, both for a fixed factor and for the dynamic one.
LARGEST_LOSS_SCALE = 2**24

OPTIMIZER_KEYS = {
    "sgd": ("momentum", "nesterov"),
    "adam": ("beta1", "beta2", "epsilon", "bare_epsilon"),
    "adamw": ("beta1", "beta2", "epsilon", "bare_epsilon"),
    "rmsprop": ("rho", "momentum", "epsilon", "centered"),
    "lars": ("momentum", "weight_decay", "eeta", "epsilon"),
}
# Optimisers without usable defaults: every key must be given.
COMPLETE_OPTIMIZERS = ("lars",)
# Keys that mean something different for one optimiser: LARS adds epsilon to norms, Adam to a square root.
# Such a value is not carried over when the optimiser changes.
OWN_MEANINGS = {"epsilon": "lars"}
SCHEDULE_KEYS = {
    "const": ("initial_learning_rate",),
    "cosine": ("initial_learning_rate", "epochs_to_total_decay"),
    "stepped": ("boundaries", "values"),
    "polynomial": (
        "initial_learning_rate",
        "epochs_to_total_decay",
        "end_learning_rate_ratio",
        "power",
    ),
    "exponential": ("initial_learning_rate", "decay_rate", "decay_updates"),
}


class _Params(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


# Not written where they are not set: runs that were begun before these keys existed keep their identity.
_LATER_OPTIMIZER_KEYS = ("nesterov", "bare_epsilon", "rho", "centered")


class OptimizerParams(_Params):
    """`--optimizer-params`: the parameters of all optimisers; `OPTIMIZER_KEYS` says which belong to which."""

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = write(self)
        return {
            key: value
            for key, value in values.items()
            if value is not None or key not in _LATER_OPTIMIZER_KEYS
        }

    momentum: float | None = Field(
        default=None, examples=[0.9], ge=0, lt=1, description="sgd, rmsprop, lars: momentum"
    )
    nesterov: bool | None = Field(
        default=None,
        examples=[True],
        description="sgd: Nesterov's momentum in the form of Keras (default: False)",
    )
    beta1: float | None = Field(
        default=None,
        examples=[0.9],
        ge=0,
        lt=1,
        description="adam, adamw: decay of the running mean of the gradient (default: 0.9)",
    )
    beta2: float | None = Field(
        default=None,
        examples=[0.999],
        ge=0,
        lt=1,
        description="adam, adamw: decay of the running mean of the squared gradient (default: 0.999)",
    )
    epsilon: float | None = Field(
        default=None,
        examples=[1e-8],
        ge=0,
        description="adam, adamw: added to the denominator (default: 1e-8); rmsprop: added inside the root "
        "(default: 1e-7); lars: added to the norms (0 means 1e-7)",
    )
    bare_epsilon: bool | None = Field(
        default=None,
        examples=[True],
        description="adam, adamw: add epsilon before the root is corrected, as Keras does (default: False)",
    )
    rho: float | None = Field(
        default=None,
        examples=[0.9],
        ge=0,
        lt=1,
        description="rmsprop: decay of the running mean of the squared gradient (default: 0.9)",
    )
    centered: bool | None = Field(
        default=None,
        examples=[True],
        description="rmsprop: divide by the deviation of the gradient, not by its root mean square "
        "(default: False)",
    )
    weight_decay: float | None = Field(
        default=None,
        examples=[5e-5],
        ge=0,
        description="lars: weight decay; adds VALUE x weight to each gradient",
    )
    eeta: float | None = Field(
        default=None,
        examples=[0.001],
        ge=0,
        description="lars: trust coefficient; step size relative to the norm of the weight",
    )


class LrScheduleParams(_Params):
    """`--lr-schedule-params`: the parameters of all schedules; `SCHEDULE_KEYS` says which belong to which."""

    initial_learning_rate: float | None = Field(
        default=None,
        examples=[0.001],
        ge=0,
        description="initial rate; const, cosine and polynomial multiply it by the global batch size",
    )
    epochs_to_total_decay: float | None = Field(
        default=None,
        examples=[15],
        gt=0,
        description="cosine, polynomial: epochs until the final learning rate (default: the whole training)",
    )
    end_learning_rate_ratio: float | None = Field(
        default=None,
        examples=[0.0001],
        ge=0,
        description="polynomial: final learning rate divided by the initial one (default: 0.0001)",
    )
    power: float | None = Field(
        default=None, examples=[1], gt=0, description="polynomial: exponent (default: 1)"
    )
    boundaries: tuple[float, ...] | None = Field(
        default=None, examples=[[2, 4]], description="stepped: epochs at which the learning rate changes"
    )
    values: tuple[float, ...] | None = Field(
        default=None,
        examples=[[0.1, 0.01, 0.001]],
        description="stepped: learning rates, one more than boundaries",
    )
    decay_rate: float | None = Field(
        default=None,
        examples=[0.9],
        gt=0,
        description="exponential: factor applied every decay_updates updates (default: 0.9)",
    )
    decay_updates: float | None = Field(
        default=None,
        examples=[1000],
        gt=0,
        description="exponential: updates per factor decay_rate (default: the whole training)",
    )


class LrWarmupParams(_Params):
    """`--lr-warmup-params`: a linear warm-up before the schedule, or over its first updates."""

    warmup_mode: WarmupMode = Field(
        default="shift",
        description="shift: the schedule starts after the warm-up; mask: the warm-up replaces the start of "
        "the schedule",
    )
    warmup_epochs: float = Field(
        default=..., ge=0, description="length of the warm-up in epochs", examples=[1]
    )


class PrecisionList(_Params):
    """`--precision-list`: the layers that run in the 16-bit type; all others run in float32."""

    half: tuple[str, ...] = Field(
        default=...,
        min_length=1,
        examples=[["conv", "linear"]],
        description="kinds and names of layers that run in 16 bits",
    )
    float32: tuple[str, ...] = Field(
        default=(),
        examples=[["head"]],
        description="exceptions that stay in float32: kinds and names of layers",
    )
