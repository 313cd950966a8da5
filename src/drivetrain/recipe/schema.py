"""The recipe: everything a user asks for, as one typed, frozen object.

The command line and YAML are two ways of writing it; `drivetrain.recipe.checks` holds every rule that
concerns more than one field. Each field carries its help text and a note: its group on the help page,
whether it may change when a run continues (`_free`; what may not, `_in`, is part of a run's identity), and
what else the other parts know of it (`drivetrain.recipe.notes`). A field without a default value carries an
example instead, for messages that name a value that works.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from drivetrain.catalogue.metrics import plain_metric
from drivetrain.recipe.notes import (
    CLASSIFICATION,
    COMPUTING,
    GROUPS,
    IN_DELIVERY,
    IN_INFERENCE,
    LATER,
    LENGTH,
    MEASURED,
    NO_NOISE,
    NOT_IN_DELIVERY,
    NOT_IN_TRAINING,
    NOT_IN_VERIFY,
    NOT_WHEN_READY,
    OF_A_MODEL,
    ONE_CALL,
    PACE,
    PER_HOST,
    SEGMENTATION,
    UNMEASURED,
    WORK,
    AlternativeFor,
    FieldNote,
    Group,
    Mark,
    NeedsStages,
    OfTask,
    augmentation,
    check_notes,
    idle,
    note_of,
)
from drivetrain.recipe.params import (
    BadSamplePolicy,
    CaptureMode,
    CompileMode,
    FoldScheme,
    HalfType,
    LossScaling,
    LrScheduleParams,
    LrWarmupParams,
    OptimiseFor,
    OptimizerName,
    OptimizerParams,
    PipelineScheduleName,
    Placement,
    PrecisionList,
    PrecisionName,
    Remainder,
    ScheduleName,
    SegmentationLoss,
    SplitBy,
    Verbosity,
)
from drivetrain.recipe.plain import (
    dataset_alias,
    lower_text,
    non_zero,
    number_as_text,
    path_as_text,
    plain_mapping,
    split_words,
)
from drivetrain.recipe.stage_options import plain_stage_options

__all__ = [
    "GROUPS",
    "LrScheduleParams",
    "LrWarmupParams",
    "OptimizerName",
    "OptimizerParams",
    "Placement",
    "Recipe",
    "Remainder",
    "ScheduleName",
    "field_note",
]

MetricName = Annotated[str, Field(min_length=1), AfterValidator(plain_metric)]
PathText = Annotated[str, Field(min_length=1), BeforeValidator(path_as_text)]


def _in(group: Group, *marks: Mark) -> FieldNote:
    return FieldNote(group, marks)


def _free(group: Group, *marks: Mark) -> FieldNote:
    return FieldNote(group, marks, may_change=True)


class Recipe(BaseModel):
    """Everything the user asked for. The defaults are the embedded demonstration."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    # model
    model: Annotated[str, _in("model", IN_INFERENCE, IN_DELIVERY)] = Field(
        default="cifar_resnet8",
        min_length=1,
        description="a name of `drivetrain models`, or package.module:factory",
    )
    model_params: Annotated[
        dict[str, Any],
        BeforeValidator(plain_mapping),
        _in("model", OF_A_MODEL, WORK, IN_INFERENCE, IN_DELIVERY),
    ] = Field(default_factory=dict, description="keyword arguments for the model's factory, as YAML")
    model_width: Annotated[int | None, _in("model", OF_A_MODEL, WORK, IN_INFERENCE, IN_DELIVERY)] = Field(
        default=None,
        examples=[32],
        ge=1,
        description="channels of the model's first block, for models that have a width (unet, unet_same)",
    )
    num_classes: Annotated[int | None, _in("model", IN_INFERENCE, IN_DELIVERY)] = Field(
        default=None, examples=[10], ge=1, description="classes (default: the data set's)"
    )
    bn_momentum: Annotated[float | None, _in("model")] = Field(
        default=None,
        examples=[0.97],
        ge=0,
        lt=1,
        description="share of the old batch-norm statistics an update keeps (default: the model's)",
    )

    stable_norm: Annotated[bool, _in("model", WORK)] = Field(
        default=False, description="batch-norm statistics in two passes over the samples, in float32"
    )
    init_from: Annotated[PathText | None, _in("model", NOT_IN_TRAINING)] = Field(
        default=None,
        examples=["runs/other"],
        description="a run directory or a .safetensors file whose weights the model starts from",
    )
    freeze: Annotated[tuple[str, ...], _in("model", WORK)] = Field(
        default=(),
        examples=[("conv1_*",)],
        description="shell patterns of layers or parameters that do not train: 'conv1_*'",
    )
    model_edit: Annotated[tuple[str, ...], _in("model", WORK, IN_INFERENCE)] = Field(
        default=(),
        examples=[("my_models:add_dropout",)],
        description="package.module:function applied to the model after it is built",
    )

    # data
    dataset: Annotated[str, BeforeValidator(dataset_alias), _in("data", IN_INFERENCE)] = Field(
        default="digits",
        min_length=1,
        description="a name of `drivetrain data list`, or package.module:factory",
    )
    data_dir: Annotated[PathText | None, _free("data", PER_HOST, NO_NOISE)] = Field(
        default=None, examples=["data"], description="folder that holds the data set's files"
    )
    dataset_size: Annotated[int | None, _in("data", NO_NOISE)] = Field(
        default=None,
        examples=[1000],
        ge=1,
        description="training samples of a generated source; for `plan`, of any data set",
    )
    channels: Annotated[int | None, _in("data", IN_INFERENCE)] = Field(
        default=None,
        examples=[3],
        ge=1,
        description="image channels of a generated source; for `plan`, of any data set",
    )
    image_size: Annotated[int | None, _in("data", IN_INFERENCE)] = Field(
        default=None, examples=[32], ge=1, description="resize images to this height and width (bilinear)"
    )
    tile_size: Annotated[int | None, _in("data", SEGMENTATION, WORK, IN_INFERENCE)] = Field(
        default=None,
        examples=[256],
        ge=1,
        description="segmentation: train on random tiles of this side, at the images' own resolution",
    )
    white_level: Annotated[int | None, _in("data", SEGMENTATION, NO_NOISE)] = Field(
        default=None,
        examples=[4095],
        ge=1,
        le=65535,
        description="mask-folder: the value of grey images of 16 bits that is white (default: 65535)",
    )
    limit_train_samples: Annotated[int | None, _in("data", NO_NOISE)] = Field(
        default=None, examples=[1000], ge=1, description="use only so many training samples"
    )
    limit_validation_samples: Annotated[int | None, _in("data", UNMEASURED, idle(validation=False))] = Field(
        default=None, examples=[1000], ge=1, description="use only so many validation samples"
    )
    validation_fraction: Annotated[float | None, _in("data", NO_NOISE)] = Field(
        default=None,
        examples=[0.2],
        ge=0,
        lt=1,
        description="share of the training samples held out for validation",
    )
    shuffle: Annotated[bool, _in("data", NOT_WHEN_READY)] = Field(
        default=True, description="a new order of the samples every epoch"
    )
    data_placement: Annotated[Placement, _free("data", NO_NOISE)] = Field(
        default="auto",
        description="resident: the whole set lies on the device; stream: loader workers bring it",
    )
    num_workers: Annotated[
        int | None,
        _free("data", PER_HOST, NOT_IN_VERIFY, NOT_WHEN_READY, idle(data_placement="resident", urgency=6)),
    ] = Field(
        default=None,
        examples=[2],
        ge=0,
        description="loader workers of a streamed data set (0: the training process itself)",
    )
    accelerator_side_preprocess: Annotated[bool | None, _in("data", WORK, NOT_WHEN_READY)] = Field(
        default=None,
        examples=[True],
        description="preprocess on the device instead of on the host (default: for resident data)",
    )
    eight_bit_transfer: Annotated[bool, _in("data", WORK, NOT_WHEN_READY)] = Field(
        default=False, description="move images to the device as uint8; needs preprocessing there"
    )
    augment: Annotated[bool | None, _in("data", *augmentation(off=False))] = Field(
        default=None,
        examples=[True],
        description="the data set's own random changes of training images (default: where it has some)",
    )
    random_resized_crop: Annotated[
        float | None, _in("data", CLASSIFICATION, *augmentation(off=None), idle(augment=False, urgency=5))
    ] = Field(
        default=None,
        examples=[0.08],
        gt=0,
        le=1,
        description="train on random crops of at least this share of the image, resized",
    )
    rand_augment: Annotated[int, _in("data", CLASSIFICATION, *augmentation())] = Field(
        default=0,
        examples=[2],
        ge=0,
        le=10,
        description="random colour and shape operations per training image",
    )
    rand_augment_magnitude: Annotated[
        float, _in("data", CLASSIFICATION, NOT_WHEN_READY, idle(rand_augment=0, urgency=6))
    ] = Field(default=9.0, ge=0, le=10, description="how strong they are, from 0 to 10")
    mixup: Annotated[float, _in("data", CLASSIFICATION, *augmentation())] = Field(
        default=0.0,
        examples=[0.2],
        ge=0,
        description="alpha of mixing each training image with another (0: off)",
    )
    rotate: Annotated[float, _in("data", SEGMENTATION, *augmentation())] = Field(
        default=0.0,
        examples=[180],
        ge=0,
        le=180,
        description="segmentation: turn training images by up to so many degrees",
    )
    elastic: Annotated[float, _in("data", SEGMENTATION, *augmentation())] = Field(
        default=0.0,
        examples=[8],
        ge=0,
        description="segmentation: bend training images by smooth shifts of about so many pixels",
    )
    gamma: Annotated[float, _in("data", SEGMENTATION, *augmentation())] = Field(
        default=0.0,
        examples=[0.2],
        ge=0,
        lt=1,
        description="segmentation: gamma of images, from 1 - this to 1 + this",
    )
    noise: Annotated[float, _in("data", SEGMENTATION, *augmentation())] = Field(
        default=0.0,
        examples=[0.05],
        ge=0,
        description="segmentation: deviation of noise on training images that span -1 to 1",
    )
    on_bad_sample: Annotated[BadSamplePolicy, _in("data", NO_NOISE)] = Field(
        default="error", description="a file that cannot be read: stop, or leave the sample out"
    )
    folds: Annotated[int | None, _in("data", NO_NOISE)] = Field(
        default=None, examples=[5], ge=2, description="cut the training samples into so many folds"
    )
    fold: Annotated[int | None, _in("data", NO_NOISE)] = Field(
        default=None, examples=[0], ge=0, description="the fold to validate on; the others train"
    )
    fold_scheme: Annotated[FoldScheme, _in("data", SEGMENTATION, NO_NOISE)] = Field(
        default="disjoint",
        description="how folds are cut: disjoint, or as the systems published on ISBI 2012 did it",
    )

    # batch
    micro_batch_size: Annotated[int, _in("batch")] = Field(
        default=32, ge=1, description="samples one forward and backward pass sees"
    )
    global_batch_size: Annotated[int | None, _free("batch", AlternativeFor("batch"))] = Field(
        default=None,
        examples=[64],
        ge=1,
        description="samples per weight update (instead of the accumulation)",
    )
    gradient_accumulation_count: Annotated[int | None, _free("batch", AlternativeFor("batch"))] = Field(
        default=None,
        examples=[2],
        ge=1,
        description="micro-batches per replica and weight update (default 1)",
    )
    replicas: Annotated[int, _free("batch", AlternativeFor("replicas"))] = Field(
        default=1, ge=1, description="data-parallel copies of the model"
    )
    devices: Annotated[int | None, _free("batch", AlternativeFor("replicas"))] = Field(
        default=None, examples=[2], ge=1, description="devices to use (instead of the replicas)"
    )
    dbn_replica_group_size: Annotated[int, _in("batch", NOT_IN_DELIVERY)] = Field(
        default=1, ge=1, description="replicas whose samples batch norm normalises together"
    )
    max_cross_replica_buffer_size: Annotated[
        int, _free("batch", NOT_IN_DELIVERY, idle(replicas=1, urgency=3))
    ] = Field(
        default=0,
        ge=0,
        description="bytes of gradient that replicas add up at a time (0: a size this device runs well)",
    )
    validation_replicas: Annotated[
        int | None, _free("batch", UNMEASURED, idle(validation=False, urgency=2))
    ] = Field(
        default=None, examples=[1], ge=1, description="replicas that share the validation (default: all)"
    )
    remainder: Annotated[Remainder, _in("batch", NO_NOISE)] = Field(
        default="trim",
        description="samples that fill no global batch: trim leaves them out, pad adds samples of no weight, "
        "carry lets a batch span two epochs",
    )
    weight_updates_per_epoch: Annotated[int | None, AfterValidator(non_zero), _in("batch", NO_NOISE)] = Field(
        default=None,
        examples=[100],
        ge=-1,
        description="length of an epoch in updates (default, and -1: what the data set gives)",
    )
    validation_micro_batch_size: Annotated[int | None, _free("batch", UNMEASURED, idle(validation=False))] = (
        Field(
            default=None,
            examples=[256],
            ge=1,
            description="samples per validation batch (default: a size this device runs well)",
        )
    )

    flip_averaging: Annotated[bool, _free("batch", OfTask("segmentation"), UNMEASURED)] = Field(
        default=False, description="segmentation: measure and predict by the mean over four flips"
    )

    # pipeline
    stages: Annotated[int | None, _free("pipeline")] = Field(
        default=None,
        examples=[2],
        ge=1,
        description="parts that the model is cut into, each on a device of its own (default: one)",
    )
    pipeline_splits: Annotated[tuple[str, ...], _free("pipeline")] = Field(
        default=(),
        examples=[("conv3_block1_out",)],
        description="the first layer of every stage but the first (default: cut as --split-by says)",
    )
    split_by: Annotated[SplitBy, _free("pipeline", NeedsStages())] = Field(
        default="cost",
        description="what automatic cuts balance: operations and sent bytes, weights, or measured time",
    )
    device_mapping: Annotated[
        tuple[int, ...], BeforeValidator(split_words), _free("pipeline", NeedsStages())
    ] = Field(
        default=(),
        examples=[(0, 1, 1, 0)],
        description="the device of each stage within a replica (default: 0 1 2 ...)",
    )
    pipeline_schedule: Annotated[PipelineScheduleName, _free("pipeline", NeedsStages(urgency=1))] = Field(
        default="1f1b", description="the order in which stages take their micro-batches"
    )
    recomputation: Annotated[bool, _free("pipeline", WORK)] = Field(
        default=False,
        description="keep the inputs of stages (without stages: of blocks) alone and compute the rest again",
    )
    optimizer_state_offloading: Annotated[bool, _free("pipeline")] = Field(
        default=False, description="keep the optimiser's state in host memory"
    )
    stage_options: Annotated[
        tuple[dict[str, Any], ...], BeforeValidator(plain_stage_options), _free("pipeline")
    ] = Field(
        default=(),
        examples=[("{stage: 0, recomputation: true}",)],
        description="recomputation, precision, compile or offload of single stages, as YAML, one each",
    )
    optimise_for: Annotated[OptimiseFor | None, _free("pipeline")] = Field(
        default=None,
        examples=["memory"],
        description="speed, balanced or memory: sets recomputation and offloading where nothing else does; "
        "memory also gives freed tensors back on a CPU, which is slower",
    )
    profile: Annotated[int | None, _free("pipeline", UNMEASURED)] = Field(
        default=None,
        examples=[2],
        ge=1,
        description="record a timeline of so many updates as a Chrome trace, profile.json, and a picture; "
        "an accelerator is waited for after each action of them",
    )

    # length
    num_epochs: Annotated[int, _free("length", LENGTH)] = Field(
        default=15, ge=1, description="passes over the training samples"
    )
    max_updates: Annotated[int | None, _free("length", LENGTH)] = Field(
        default=None, examples=[1000], ge=1, description="stop after so many weight updates"
    )
    stop_at: Annotated[str | None, _free("length", LENGTH, idle(validation=False, urgency=1))] = Field(
        default=None,
        examples=["accuracy=0.97"],
        description="METRIC=VALUE of the validation at which the training ends",
    )
    patience: Annotated[int | None, _free("length", LENGTH, idle(validation=False, urgency=1))] = Field(
        default=None,
        examples=[5],
        ge=1,
        description="validations in a row without a better one after which the training ends",
    )
    max_time: Annotated[str | None, BeforeValidator(number_as_text), _free("length")] = Field(
        default=None,
        examples=["2h"],
        description="90, 30m, 2h: longest time since the start of the command (in Python: of the call); "
        "before it is up, the run writes a checkpoint and exits with status 75",
    )

    # optimisation
    optimizer: Annotated[OptimizerName, _in("optimisation", WORK)] = Field(
        default="sgd", description="the optimiser"
    )
    optimizer_params: Annotated[OptimizerParams, _in("optimisation", WORK)] = Field(
        default_factory=lambda: OptimizerParams(momentum=0.9),
        description="what belongs to the optimiser, as YAML: '{\"momentum\": 0.9}'",
    )
    learning_rate: Annotated[float | None, _in("optimisation")] = Field(
        default=None,
        examples=[0.1],
        ge=0,
        description="the peak learning rate, for any schedule (default 0.1 when nothing sets one)",
    )
    lr_schedule: Annotated[ScheduleName, _in("optimisation")] = Field(
        default="cosine", description="the learning rate's course over the updates"
    )
    lr_schedule_params: Annotated[LrScheduleParams, _in("optimisation")] = Field(
        default_factory=LrScheduleParams, description="what belongs to the schedule, as YAML"
    )
    lr_warmup_params: Annotated[LrWarmupParams | None, _in("optimisation", NOT_IN_VERIFY)] = Field(
        default=None,
        examples=[{"warmup_epochs": 1}],
        description='warm-up, as YAML: \'{"warmup_mode": "shift", "warmup_epochs": 1}\'',
    )
    lr_staircase: Annotated[bool, _in("optimisation", NOT_IN_VERIFY)] = Field(
        default=False, description="the rate changes only from epoch to epoch"
    )
    weight_decay: Annotated[float, _in("optimisation", WORK)] = Field(
        default=0.0,
        ge=0,
        description="decoupled decay: weights shrink by rate x this per update (sgd, adamw)",
    )
    l2_regularization: Annotated[float, _in("optimisation", WORK)] = Field(
        default=0.0, ge=0, description="times the weight, added to its gradient"
    )
    label_smoothing: Annotated[float, _in("optimisation", CLASSIFICATION, WORK)] = Field(
        default=0.0, ge=0, lt=1, description="share of the target spread over all classes"
    )
    loss: Annotated[SegmentationLoss, _in("optimisation", SEGMENTATION, WORK)] = Field(
        default="softmax", description="segmentation: the cross-entropy beside the soft Dice"
    )
    cross_entropy_weight: Annotated[float, _in("optimisation", SEGMENTATION)] = Field(
        default=1.0, ge=0, description="segmentation: how much the cross-entropy counts in the loss"
    )
    dice_weight: Annotated[float, _in("optimisation", SEGMENTATION)] = Field(
        default=1.0, ge=0, description="segmentation: how much 1 - soft Dice counts in the loss"
    )
    border_weight: Annotated[float, _in("optimisation", SEGMENTATION, WORK, IN_DELIVERY)] = Field(
        default=0.0,
        examples=[10],
        ge=0,
        description="segmentation: extra weight of pixels between near objects (U-Net paper: 10; 0: off)",
    )
    border_sigma: Annotated[
        float, _in("optimisation", SEGMENTATION, IN_DELIVERY, idle(border_weight=0, urgency=5))
    ] = Field(default=5.0, gt=0, description="how far apart, in pixels, objects are near")
    clip_norm: Annotated[float | None, _in("optimisation", WORK)] = Field(
        default=None,
        examples=[1.0],
        gt=0,
        description="longest allowed gradient (Euclidean norm over all parameters)",
    )
    loss_scaling: Annotated[LossScaling, _in("optimisation", WORK)] = Field(
        default=0.0,
        examples=["dynamic"],
        description="factor on the loss, taken out of the gradient again (0: none), or dynamic: as large as "
        "gradients allow, and an update whose gradient is not finite is skipped",
    )
    ema: Annotated[float | None, _in("optimisation", WORK, NOT_IN_VERIFY)] = Field(
        default=None,
        examples=[0.999],
        gt=0,
        lt=1,
        description="share of the averaged weights an update keeps; they are validated and kept too",
    )
    class_weights: Annotated[tuple[str, ...], _in("optimisation", WORK)] = Field(
        default=(), examples=[("balanced",)], description="balanced, or a weight for each class"
    )

    precision: Annotated[PrecisionName, _in("optimisation", COMPUTING, IN_INFERENCE)] = Field(
        default="auto",
        description="bits of products and of weights; auto: 16.32 on an accelerator with bfloat16",
    )
    half_type: Annotated[
        HalfType,
        _in("optimisation", COMPUTING, IN_INFERENCE, NOT_IN_VERIFY, idle(precision="32.32", urgency=5)),
    ] = Field(default="bfloat16", description="the 16-bit type of --precision 16.32 and 16.16")
    stochastic_rounding: Annotated[
        bool,
        _in(
            "optimisation",
            WORK,
            NOT_IN_VERIFY,
            idle(precision="32.32", urgency=4),
            idle(precision="16.32", urgency=4),
        ),
    ] = Field(
        default=False, description="round the weights of --precision 16.16 up or down by chance, without bias"
    )
    half_partials: Annotated[
        bool, _in("optimisation", WORK, IN_INFERENCE, NOT_IN_VERIFY, idle(precision="32.32", urgency=5))
    ] = Field(default=False, description="add up 16-bit products in 16 bits where the device can")
    precision_list: Annotated[
        PrecisionList | None, _in("optimisation", WORK, NOT_IN_VERIFY, idle(precision="32.32", urgency=5))
    ] = Field(
        default=None,
        examples=[{"half": ["conv", "linear"]}],
        description="a YAML or JSON file: the layers that --precision 16.32 runs in 16 bits (half: [conv, "
        "linear]) and exceptions from them (float32: [head]); all others run in float32",
    )
    fp_exceptions: Annotated[bool, _free("optimisation", NOT_IN_VERIFY)] = Field(
        default=False,
        description="stop at the first inf or nan and name its layer, update and samples; slow",
    )
    compile: Annotated[CompileMode, _free("optimisation", COMPUTING, IN_INFERENCE, NOT_IN_VERIFY)] = Field(
        default="auto",
        description="compile model, loss, augmentation and optimiser (torch.compile); auto: where measuring "
        "says that it pays for a training of this length",
    )

    capture: Annotated[CaptureMode, _free("optimisation", NOT_IN_VERIFY)] = Field(
        default="auto",
        description="record an update once and replay it, where the device can; off never does",
    )

    # events
    logs_per_epoch: Annotated[
        str, BeforeValidator(number_as_text), _free("events", PACE, AlternativeFor("logs"))
    ] = Field(
        default="1", description="host events per epoch: 2, 0.5, 1/3; 0: the whole run in one execution"
    )
    log_every: Annotated[int | None, _free("events", PACE, AlternativeFor("logs"))] = Field(
        default=None,
        examples=[50],
        ge=1,
        description="log every so many updates (instead of --logs-per-epoch)",
    )
    steps_per_execution: Annotated[int | None, _free("events", PACE, AlternativeFor("logs"))] = Field(
        default=None,
        examples=[100],
        ge=1,
        description="micro-batches of one replica between two logs (instead of --logs-per-epoch)",
    )
    evaluate_every: Annotated[int | None, _free("events", PACE, idle(validation=False, urgency=2))] = Field(
        default=None,
        examples=[100],
        ge=1,
        description="validate every so many updates (default: once per epoch, or at every log where "
        "--logs-per-epoch is below 1; more rarely if that would take more than a fifth of the training time)",
    )
    checkpoint_every: Annotated[int | None, _free("events", PACE, idle(checkpoints=False, urgency=7))] = (
        Field(
            default=None,
            examples=[100],
            ge=1,
            description="checkpoint every so many updates (default: at every log)",
        )
    )

    best_by: Annotated[MetricName | None, _in("events", LATER, idle(validation=False, urgency=1))] = Field(
        default=None,
        examples=["iou"],
        description="validation metric that chooses the best checkpoint, such as accuracy, loss, iou or "
        "iou_CLASS (default: accuracy; of masks dice, the soft Dice as a mean over classes)",
    )

    # run
    seed: Annotated[int, _in("run", MEASURED)] = Field(
        default=0, ge=0, lt=2**63, description="seed of every random draw"
    )
    device: Annotated[str, _free("run", PER_HOST, COMPUTING, MEASURED)] = Field(
        default="auto", description="auto, cpu, or another device of torch"
    )
    num_threads: Annotated[int | None, _free("run", PER_HOST, COMPUTING, MEASURED)] = Field(
        default=None, examples=[2], ge=1, description="threads of CPU operations (default: torch's choice)"
    )
    output_dir: Annotated[PathText | None, _free("run", PER_HOST)] = Field(
        default=None, examples=["runs/mine"], description="the run directory (default: runs/<recipe>-<hash>)"
    )
    training: Annotated[bool, _free("run", ONE_CALL)] = Field(
        default=True, description="False: only validate the newest checkpoint"
    )
    validation: Annotated[bool, _free("run")] = Field(
        default=True, description="measure on the validation samples"
    )
    checkpoints: Annotated[bool, _free("run")] = Field(default=True, description="write checkpoints")
    keep_checkpoints: Annotated[int, _free("run", idle(checkpoints=False, urgency=8))] = Field(
        default=2, ge=1, description="newest checkpoints kept, beside the best one"
    )
    predict_after: Annotated[tuple[PathText, ...], _free("run")] = Field(
        default=(),
        examples=[("test-volume.tif",)],
        description="images to predict once the training is finished, into the run's predictions/",
    )
    clean_dir: Annotated[bool, _free("run", idle(checkpoints=False, urgency=7))] = Field(
        default=False, description="remove the checkpoints once the run is finished and validated"
    )
    overwrite: Annotated[bool, _free("run", ONE_CALL)] = Field(
        default=False, description="start afresh in an existing run directory"
    )
    log_dir: Annotated[PathText | None, _free("run", PER_HOST)] = Field(
        default=None,
        examples=["logs"],
        description="folder for TensorBoard and W&B logs (default: the run directory)",
    )
    log_all_workers: Annotated[bool, _free("run", PER_HOST, idle(replicas=1, urgency=3, alone=True))] = Field(
        default=False, description="every rank logs in full, not only the first"
    )
    max_restarts: Annotated[int, _free("run", idle(replicas=1, urgency=3, alone=True))] = Field(
        default=0, ge=0, description="how often failed ranks are started again from the newest checkpoint"
    )
    parallel_folds: Annotated[int, _free("run")] = Field(
        default=1, ge=1, description="crossval: folds that train at the same time"
    )
    wandb: Annotated[bool, _free("run", PER_HOST)] = Field(
        default=False, description="also log to Weights & Biases (pip install wandb)"
    )
    verbosity: Annotated[Verbosity, _free("run", PER_HOST, COMPUTING, MEASURED)] = Field(
        default="normal", description="how much is printed: quiet, normal, or verbose"
    )
    tensorboard: Annotated[bool, _free("run", PER_HOST)] = Field(
        default=False, description="also write TensorBoard logs"
    )

    @model_validator(mode="before")
    @classmethod
    def _momentum_is_of_sgd(cls, data: Any) -> Any:
        """The default momentum belongs to the default optimiser and does not follow another one."""
        if not isinstance(data, dict) or "optimizer_params" in data or "optimizer" not in data:
            return data
        if lower_text(data["optimizer"]) == "sgd":
            return data
        return {**data, "optimizer_params": {}}


check_notes(Recipe.model_fields)


def field_note(name: str) -> FieldNote:
    """The note on a recipe's field."""
    return note_of(Recipe.model_fields[name])
