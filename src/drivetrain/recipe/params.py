"""The recipe's choices, and the mappings whose keys belong to one choice each."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from drivetrain.recipe.plain import exchange_target, loss_scale, lower_text, number_as_text, schedule_name

OptimizerName = Annotated[Literal["sgd", "adam", "adamw", "lars"], BeforeValidator(lower_text)]
ScheduleName = Annotated[
    Literal["const", "cosine", "stepped", "polynomial", "exponential"], BeforeValidator(lower_text)
]
Remainder = Annotated[Literal["trim", "pad", "carry"], BeforeValidator(lower_text)]
Placement = Annotated[Literal["auto", "resident", "stream"], BeforeValidator(lower_text)]
BadSamplePolicy = Annotated[Literal["error", "skip"], BeforeValidator(lower_text)]
FoldScheme = Annotated[Literal["disjoint", "graphcore", "nvidia", "habana"], BeforeValidator(lower_text)]
SegmentationLoss = Annotated[Literal["softmax", "sigmoid"], BeforeValidator(lower_text)]
PrecisionName = Annotated[Literal["auto", "32.32", "16.32", "16.16"], BeforeValidator(number_as_text)]
HalfType = Annotated[Literal["bfloat16", "float16"], BeforeValidator(lower_text)]
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

# Of a factor that is given, and of one that is found.
LARGEST_LOSS_SCALE = 2**24

OPTIMIZER_KEYS = {
    "sgd": ("momentum",),
    "adam": ("beta1", "beta2", "epsilon"),
    "adamw": ("beta1", "beta2", "epsilon"),
    "lars": ("momentum", "weight_decay", "eeta", "epsilon"),
}
# Optimisers that do not work without all of their keys.
COMPLETE_OPTIMIZERS = ("lars",)
# The optimiser for which a key means something else than for the others.
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


class OptimizerParams(_Params):
    """`--optimizer-params`: what belongs to one optimiser."""

    momentum: float | None = Field(
        default=None, examples=[0.9], ge=0, lt=1, description="sgd, lars: share of the last step kept"
    )
    beta1: float | None = Field(
        default=None, examples=[0.9], ge=0, lt=1, description="adam, adamw: decay of the mean (0.9)"
    )
    beta2: float | None = Field(
        default=None, examples=[0.999], ge=0, lt=1, description="adam, adamw: decay of the square (0.999)"
    )
    epsilon: float | None = Field(
        default=None,
        examples=[1e-8],
        ge=0,
        description="adam, adamw: added to the root (1e-8); lars: added to the norms (0 stands for 1e-7)",
    )
    weight_decay: float | None = Field(
        default=None, examples=[5e-5], ge=0, description="lars: times the weight, added to its gradient"
    )
    eeta: float | None = Field(
        default=None, examples=[0.001], ge=0, description="lars: longest step as a share of the weight"
    )


class LrScheduleParams(_Params):
    """`--lr-schedule-params`: what belongs to one schedule."""

    initial_learning_rate: float | None = Field(
        default=None,
        examples=[0.001],
        ge=0,
        description="rate per sample: times the global batch for const, cosine and polynomial",
    )
    epochs_to_total_decay: float | None = Field(
        default=None,
        examples=[15],
        gt=0,
        description="cosine, polynomial: epochs until the end rate (default: the whole training)",
    )
    end_learning_rate_ratio: float | None = Field(
        default=None,
        examples=[0.0001],
        ge=0,
        description="polynomial: end rate as a share of the first (0.0001)",
    )
    power: float | None = Field(default=None, examples=[1], gt=0, description="polynomial: the exponent (1)")
    boundaries: tuple[float, ...] | None = Field(
        default=None, examples=[[2, 4]], description="stepped: epochs after which a value ends"
    )
    values: tuple[float, ...] | None = Field(
        default=None,
        examples=[[0.1, 0.01, 0.001]],
        description="stepped: the rates, one more than boundaries",
    )
    decay_rate: float | None = Field(
        default=None, examples=[0.9], gt=0, description="exponential: factor per decay_updates (0.9)"
    )
    decay_updates: float | None = Field(
        default=None,
        examples=[1000],
        gt=0,
        description="exponential: updates per factor (default: the whole training)",
    )


class LrWarmupParams(_Params):
    """`--lr-warmup-params`: a linear rise before or over the schedule."""

    warmup_mode: WarmupMode = Field(
        default="shift",
        description="shift: the schedule starts after it; mask: it lies over the schedule's start",
    )
    warmup_epochs: float = Field(default=..., ge=0, description="epochs of rising rate", examples=[1])


class PrecisionList(_Params):
    """`--precision-list`: what runs in the 16-bit type; everything else runs in float32."""

    half: tuple[str, ...] = Field(
        default=..., min_length=1, examples=[["conv", "linear"]], description="kinds and names of layers"
    )
    float32: tuple[str, ...] = Field(
        default=(), examples=[["head"]], description="exceptions from them: kinds and names of layers"
    )
