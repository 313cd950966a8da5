"""The recipe: all options of a training run, as one typed, frozen pydantic model.

The command line and YAML files are two ways to write it. `drivetrain.recipe.checks` holds the rules that
involve more than one field. Each field carries its help text and a note (`drivetrain.recipe.notes`): its
group on the help page and whether it may change when a run continues. `_free` fields may; `_in` fields are
part of the run's identity. A field without a default carries an example, for error messages.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from drivetrain.catalogue.metrics import plain_metric
from drivetrain.recipe.normalisation import ChannelValues, normalisation_value
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
    OF_IMAGES,
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
    InputKindName,
    LossScaling,
    LrScheduleParams,
    LrWarmupParams,
    MemoryFormat,
    OptimiseFor,
    OptimizerName,
    OptimizerParams,
    PipelineScheduleName,
    Placement,
    PrecisionList,
    PrecisionName,
    RandomFlips,
    Remainder,
    RulesMode,
    ScheduleName,
    SegmentationLoss,
    SplitBy,
    SplitScheme,
    Verbosity,
)
from drivetrain.recipe.plain import (
    dataset_alias,
    lower_text,
    non_zero,
    number_as_text,
    path_as_text,
    plain_mapping,
    split_commas,
    split_words,
    switch_or_path,
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
    """All options of one run; the defaults train a small network on scikit-learn's digits."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    # model
    model: Annotated[str, _in("model", IN_INFERENCE, IN_DELIVERY)] = Field(
        default="cifar_resnet8",
        min_length=1,
        description="a name listed by `drivetrain models`, a library's model such as timm/resnet18 (also "
        "torchvision/, hf/ and smp/), or package.module:factory for your own model",
    )
    model_params: Annotated[
        dict[str, Any],
        BeforeValidator(plain_mapping),
        _in("model", OF_A_MODEL, WORK, IN_INFERENCE, IN_DELIVERY),
    ] = Field(default_factory=dict, description="keyword arguments of the model, as YAML: '{depth: 3}'")
    model_width: Annotated[int | None, _in("model", OF_A_MODEL, WORK, IN_INFERENCE, IN_DELIVERY)] = Field(
        default=None,
        examples=[32],
        ge=1,
        description="channels of the model's first block, for models with a variable width (unet, unet_same, "
        "cifar_resnet, resnet18, resnet34)",
    )
    num_classes: Annotated[int | None, _in("model", IN_INFERENCE, IN_DELIVERY)] = Field(
        default=None, examples=[10], ge=1, description="number of classes (default: as in the data set)"
    )
    bn_momentum: Annotated[float | None, _in("model")] = Field(
        default=None,
        examples=[0.97],
        ge=0,
        lt=1,
        description="batch-norm momentum: fraction of the old running statistics that each update keeps, "
        "that is 1 minus PyTorch's momentum (default: the model's own)",
    )
    stable_norm: Annotated[bool, _in("model", WORK)] = Field(
        default=False, description="compute batch-norm statistics in two passes in float32, more accurately"
    )
    init_from: Annotated[PathText | None, _in("model", NOT_IN_TRAINING)] = Field(
        default=None,
        examples=["runs/other"],
        description="start from the weights of this run directory, file or folder, as --pretrained PATH does",
    )
    pretrained: Annotated[
        bool | str, BeforeValidator(switch_or_path), _in("model", LATER, NOT_IN_TRAINING)
    ] = Field(
        default=False,
        examples=["resnet50.safetensors"],
        description="start from the weights that the library of --model publishes, or from those of a file, "
        "a run or a folder; a head for other classes and other input channels are adapted",
    )
    freeze: Annotated[tuple[str, ...], _in("model", WORK)] = Field(
        default=(),
        examples=[("conv1_*",)],
        description="what not to train: backbone for everything but the classifier head, or shell patterns "
        "of layers or parameters, for example 'conv1_*'",
    )
    freeze_norm: Annotated[bool | None, _in("model", LATER, WORK)] = Field(
        default=None,
        examples=[True],
        description="True: all batch norms use and keep their running statistics and are not trained; False: "
        "frozen ones update their statistics too (default: those whose weights --freeze stops are frozen)",
    )
    model_edit: Annotated[tuple[str, ...], _in("model", WORK, IN_INFERENCE)] = Field(
        default=(),
        examples=[("my_models:add_dropout",)],
        description="package.module:function, called with the model after it is built, to change it",
    )

    # data
    dataset: Annotated[str, BeforeValidator(dataset_alias), _in("data", IN_INFERENCE)] = Field(
        default="digits",
        min_length=1,
        description="a name listed by `drivetrain data list`, or package.module:factory for your own data",
    )
    data_dir: Annotated[PathText | None, _free("data", PER_HOST, NO_NOISE)] = Field(
        default=None, examples=["data"], description="folder with the data set's files"
    )
    dataset_size: Annotated[int | None, _in("data", NO_NOISE)] = Field(
        default=None,
        examples=[1000],
        ge=1,
        description="number of training samples of a generated data set; `plan` accepts it for any data set",
    )
    channels: Annotated[int | None, _in("data", IN_INFERENCE)] = Field(
        default=None,
        examples=[3],
        ge=1,
        description="number of image channels of a generated data set; `plan` accepts it for any data set",
    )
    input_kind: Annotated[InputKindName, _in("data", LATER, IN_INFERENCE)] = Field(
        default="auto",
        description="what your own arrays hold: images, a table (samples, features), or signals of one or "
        "more channels; auto: a table if an array has two dimensions, else images",
    )
    image_size: Annotated[int | None, _in("data", OF_IMAGES, IN_INFERENCE)] = Field(
        default=None,
        examples=[32],
        ge=1,
        description="resize images to N x N pixels (bilinear; default: the data's size, for classification "
        "with a library's model the library's; none: the data's)",
    )
    normalisation: Annotated[
        str | ChannelValues,
        BeforeValidator(normalisation_value),
        _in("data", LATER, OF_IMAGES, WORK, NOT_WHEN_READY),
    ] = Field(
        default="auto",
        examples=["imagenet"],
        description="how uint8 images are normalised: unit (0 to 1), standardise (each image to mean 0 and "
        "deviation 1), imagenet (its mean and deviation per channel), symmetric (-1 to 1), your own values "
        "for pixels from 0 to 1 as '{mean: [0.5], std: [0.25]}', or auto: a library's model brings its own, "
        "otherwise the data set decides",
    )
    tile_size: Annotated[int | None, _in("data", SEGMENTATION, WORK, IN_INFERENCE)] = Field(
        default=None,
        examples=[256],
        ge=1,
        description="segmentation: train on random square tiles with this side in pixels, without resizing",
    )
    ignore_class: Annotated[
        tuple[str, ...], BeforeValidator(split_commas), _in("data", LATER, SEGMENTATION, WORK, NO_NOISE)
    ] = Field(
        default=(),
        examples=[("unlabelled",)],
        description="segmentation: classes whose pixels count neither in the loss nor in any metric and "
        "that are never predicted, separated by commas",
    )
    white_level: Annotated[int | None, _in("data", OF_IMAGES, NO_NOISE)] = Field(
        default=None,
        examples=[4095],
        ge=1,
        le=65535,
        description="image-folder, image-table, mask-folder: pixel value that counts as white in 16-bit grey "
        "images (default: 65535)",
    )
    label_table: Annotated[str | None, _in("data", LATER, NO_NOISE, CLASSIFICATION)] = Field(
        default=None,
        examples=["labels.csv"],
        description="image-table: the table in --data-dir to read, if several name images",
    )
    file_column: Annotated[str | None, _in("data", LATER, NO_NOISE, CLASSIFICATION)] = Field(
        default=None,
        examples=["file"],
        description="image-table: column that names the images (default: the one whose values do)",
    )
    label_column: Annotated[str | None, _in("data", LATER, NO_NOISE, CLASSIFICATION)] = Field(
        default=None,
        examples=["label"],
        description="image-table: column with the class of each image (default: the one called label or the "
        "like, or the only one whose values repeat)",
    )
    limit_train_samples: Annotated[int | None, _in("data", NO_NOISE)] = Field(
        default=None, examples=[1000], ge=1, description="use at most this many training samples"
    )
    limit_validation_samples: Annotated[int | None, _in("data", UNMEASURED, idle(validation=False))] = Field(
        default=None, examples=[1000], ge=1, description="use at most this many validation samples"
    )
    validation_fraction: Annotated[float | None, _in("data", NO_NOISE)] = Field(
        default=None,
        examples=[0.2],
        ge=0,
        lt=1,
        description="fraction of the training samples held out for validation (default: 0.2 if a named "
        "data set has no validation samples)",
    )
    split_scheme: Annotated[SplitScheme, _in("data", LATER, CLASSIFICATION, NO_NOISE)] = Field(
        default="random",
        description="how samples are held out by --validation-fraction; stratified: every class keeps its "
        "share (folds are always stratified)",
    )
    group_by: Annotated[str | None, _in("data", LATER, NO_NOISE)] = Field(
        default=None,
        examples=["prefix"],
        min_length=1,
        description="keep samples of a group on one side of every split: prefix (the file name up to its "
        "first _, - or .), folder (below the class folder), file (pages of one file), or a regular "
        "expression with one group, such as '^(patient\\d+)_'; it is matched against file names, or with "
        "a / against paths",
    )
    shuffle: Annotated[bool, _in("data", NOT_WHEN_READY)] = Field(
        default=True, description="shuffle the training samples in every epoch"
    )
    data_placement: Annotated[Placement, _free("data", NO_NOISE)] = Field(
        default="auto",
        description="resident: keep the whole data set in device memory; stream: load batches with loader "
        "workers; auto: resident if it fits",
    )
    num_workers: Annotated[
        int | None,
        _free("data", PER_HOST, NOT_IN_VERIFY, NOT_WHEN_READY, idle(data_placement="resident", urgency=6)),
    ] = Field(
        default=None,
        examples=[2],
        ge=0,
        description="number of loader workers for streamed data (0: load in the training process)",
    )
    accelerator_side_preprocess: Annotated[bool | None, _in("data", WORK, NOT_WHEN_READY)] = Field(
        default=None,
        examples=[True],
        description="preprocess images on the device instead of the host (default: only for resident data)",
    )
    eight_bit_transfer: Annotated[bool, _in("data", OF_IMAGES, WORK, NOT_WHEN_READY)] = Field(
        default=False, description="send images to the device as uint8; needs --accelerator-side-preprocess"
    )
    augment: Annotated[bool | None, _in("data", OF_IMAGES, *augmentation(off=False))] = Field(
        default=None,
        examples=[True],
        description="augment training images with random flips and crops, for segmentation also brightness "
        "(default: on for cifar10 and imagenet; flips only for segmentation; off otherwise)",
    )
    random_flips: Annotated[
        RandomFlips,
        _in("data", LATER, OF_IMAGES, *augmentation(off="none"), idle(augment=False, urgency=5)),
    ] = Field(
        default="auto",
        description="directions in which training images are mirrored at random; auto: with --augment "
        "horizontal for classification, always both for segmentation",
    )
    random_resized_crop: Annotated[
        float | None,
        _in("data", OF_IMAGES, CLASSIFICATION, *augmentation(off=None), idle(augment=False, urgency=5)),
    ] = Field(
        default=None,
        examples=[0.08],
        gt=0,
        le=1,
        description="train on random crops with at least this fraction of the image's area, resized",
    )
    rand_augment: Annotated[int, _in("data", OF_IMAGES, CLASSIFICATION, *augmentation())] = Field(
        default=0,
        examples=[2],
        ge=0,
        le=10,
        description="RandAugment: number of colour and shape operations per training image; 0: off",
    )
    rand_augment_magnitude: Annotated[
        float, _in("data", CLASSIFICATION, NOT_WHEN_READY, idle(rand_augment=0, urgency=6))
    ] = Field(default=9.0, ge=0, le=10, description="RandAugment: strength of the operations, from 0 to 10")
    mixup: Annotated[float, _in("data", CLASSIFICATION, *augmentation())] = Field(
        default=0.0,
        examples=[0.2],
        ge=0,
        description="mixup: alpha of the Beta distribution that draws the mixing ratio; 0: off",
    )
    rotate: Annotated[float, _in("data", SEGMENTATION, *augmentation())] = Field(
        default=0.0,
        examples=[180],
        ge=0,
        le=180,
        description="segmentation: rotate training images by a random angle of up to this many degrees",
    )
    elastic: Annotated[float, _in("data", SEGMENTATION, *augmentation())] = Field(
        default=0.0,
        examples=[8],
        ge=0,
        description="segmentation: random elastic deformation; standard deviation of the shifts in pixels",
    )
    gamma: Annotated[float, _in("data", SEGMENTATION, *augmentation())] = Field(
        default=0.0,
        examples=[0.2],
        ge=0,
        lt=1,
        description="segmentation: random gamma correction with an exponent between 1 - VALUE and 1 + VALUE",
    )
    noise: Annotated[float, _in("data", SEGMENTATION, *augmentation())] = Field(
        default=0.0,
        examples=[0.05],
        ge=0,
        description="segmentation: standard deviation of Gaussian noise on images with values from -1 to 1",
    )
    on_bad_sample: Annotated[BadSamplePolicy, _in("data", NO_NOISE)] = Field(
        default="error", description="if a file cannot be read: stop with an error, or skip the sample"
    )
    folds: Annotated[int | None, _in("data", NO_NOISE)] = Field(
        default=None, examples=[5], ge=2, description="number of cross-validation folds"
    )
    fold: Annotated[int | None, _in("data", NO_NOISE)] = Field(
        default=None, examples=[0], ge=0, description="fold to validate on, from 0; the others train"
    )
    fold_scheme: Annotated[FoldScheme, _in("data", SEGMENTATION, NO_NOISE)] = Field(
        default="disjoint",
        description="disjoint folds, or the folds of a published ISBI 2012 implementation",
    )

    # batch
    micro_batch_size: Annotated[int, _in("batch")] = Field(
        default=32, ge=1, description="samples in one forward and backward pass of one replica"
    )
    global_batch_size: Annotated[int | None, _free("batch", AlternativeFor("batch"))] = Field(
        default=None,
        examples=[64],
        ge=1,
        description="samples per weight update; sets the gradient accumulation",
    )
    gradient_accumulation_count: Annotated[int | None, _free("batch", AlternativeFor("batch"))] = Field(
        default=None,
        examples=[2],
        ge=1,
        description="micro-batches that each replica accumulates per weight update (default: 1)",
    )
    replicas: Annotated[int, _free("batch", AlternativeFor("replicas"), IN_INFERENCE)] = Field(
        default=1,
        ge=1,
        description="number of data-parallel replicas of the model; on the command line, auto searches "
        "a layout",
    )
    devices: Annotated[int | None, _free("batch", AlternativeFor("replicas"), IN_INFERENCE)] = Field(
        default=None,
        examples=[2],
        ge=1,
        description="number of devices to use: sets the number of replicas, or what a search may use",
    )
    dbn_replica_group_size: Annotated[int, _in("batch", NOT_IN_DELIVERY)] = Field(
        default=1,
        ge=1,
        description="synchronised batch norm: number of replicas that share statistics; set it to "
        "--replicas to get the result of one replica with the whole batch",
    )
    max_cross_replica_buffer_size: Annotated[
        int, _free("batch", NOT_IN_DELIVERY, idle(replicas=1, urgency=3))
    ] = Field(
        default=0,
        ge=0,
        description="bucket size of the gradient all-reduce in bytes; 0: the built-in size",
    )
    validation_replicas: Annotated[
        int | None, _free("batch", UNMEASURED, idle(validation=False, urgency=2))
    ] = Field(default=None, examples=[1], ge=1, description="number of replicas that validate (default: all)")
    remainder: Annotated[Remainder, _in("batch", NO_NOISE)] = Field(
        default="trim",
        description="what happens to the last samples if they do not fill a global batch: trim skips them, "
        "pad fills the batch with samples of weight 0, carry continues the batch in the next epoch",
    )
    weight_updates_per_epoch: Annotated[int | None, AfterValidator(non_zero), _in("batch", NO_NOISE)] = Field(
        default=None,
        examples=[100],
        ge=-1,
        description="weight updates per epoch (default, or -1: from the size of the data set)",
    )
    validation_micro_batch_size: Annotated[int | None, _free("batch", UNMEASURED, idle(validation=False))] = (
        Field(
            default=None,
            examples=[256],
            ge=1,
            description="samples per validation batch (default: a size that suits the device)",
        )
    )
    fit: Annotated[bool, _free("batch", UNMEASURED)] = Field(
        default=False,
        description="take a smaller micro-batch, at the same global batch, where the memory does not "
        "suffice, even if batch norm then normalises fewer samples together",
    )
    flip_averaging: Annotated[bool, _free("batch", OF_IMAGES, UNMEASURED)] = Field(
        default=False,
        description="test-time augmentation: average predictions over the image and its mirror images, in "
        "the directions of --random-flips (without those: left and right; for segmentation also up and down)",
    )

    # pipeline
    stages: Annotated[int | None, _free("pipeline")] = Field(
        default=None,
        examples=[2],
        ge=1,
        description="number of pipeline stages that the model is split into, one per device (default: 1); on "
        "the command line, auto searches a layout",
    )
    pipeline_splits: Annotated[tuple[str, ...], _free("pipeline")] = Field(
        default=(),
        examples=[("conv3_block1_out",)],
        description="names of the first layer of each stage except the first (default: chosen by --split-by)",
    )
    split_by: Annotated[SplitBy, _free("pipeline", NeedsStages())] = Field(
        default="cost",
        description="balance automatic splits by cost (operations, bytes sent), parameters or measured time",
    )
    device_mapping: Annotated[
        tuple[int, ...], BeforeValidator(split_words), _free("pipeline", NeedsStages())
    ] = Field(
        default=(),
        examples=[(0, 1, 1, 0)],
        description="device of each stage within a replica, such as 0 1 1 0 (default: 0 1 2 ...)",
    )
    pipeline_schedule: Annotated[PipelineScheduleName, _free("pipeline", NeedsStages(urgency=1))] = Field(
        default="1f1b", description="order in which stages run the passes of their micro-batches"
    )
    recomputation: Annotated[bool, _free("pipeline", WORK)] = Field(
        default=False,
        description="activation checkpointing: keep only the inputs of each stage (without stages: of each "
        "block) and recompute the other activations in the backward pass",
    )
    optimizer_state_offloading: Annotated[bool, _free("pipeline")] = Field(
        default=False, description="keep the optimiser state in host memory instead of device memory"
    )
    stage_options: Annotated[
        tuple[dict[str, Any], ...], BeforeValidator(plain_stage_options), _free("pipeline")
    ] = Field(
        default=(),
        examples=[("{stage: 0, recomputation: true}",)],
        description="settings of single stages, one YAML mapping each, with recomputation, precision, "
        "compile or offload: '{stage: 0, recomputation: true}'",
    )
    optimise_for: Annotated[OptimiseFor | None, _free("pipeline")] = Field(
        default=None,
        examples=["memory"],
        description="set recomputation and offloading where you do not: speed turns both off, balanced "
        "recomputes, memory turns both on (and on a CPU frees memory at once, which is slower)",
    )
    profile: Annotated[int | None, _free("pipeline", UNMEASURED)] = Field(
        default=None,
        examples=[2],
        ge=1,
        description="record a timeline of N updates as a Chrome trace (profile.json) and a picture; the "
        "device is synchronised after each action, so timings are exact but updates are slower",
    )

    # length
    auto: Annotated[RulesMode, _free("length")] = Field(
        default="auto",
        description="whether rules choose every option that you do not set, from your data and device; auto: "
        "for your own folder, where no --config is given; off: the plain defaults",
    )
    budget: Annotated[str | None, BeforeValidator(number_as_text), _free("length")] = Field(
        default=None,
        examples=["10m"],
        description="time that the rules of --auto plan for: quick (2 minutes), normal (15 minutes), best (2 "
        "hours), or a duration such as 10m (default: normal)",
    )
    num_epochs: Annotated[int, _free("length", LENGTH)] = Field(
        default=15, ge=1, description="number of epochs to train"
    )
    max_updates: Annotated[int | None, _free("length", LENGTH)] = Field(
        default=None, examples=[1000], ge=1, description="stop after this many weight updates"
    )
    stop_at: Annotated[str | None, _free("length", LENGTH, idle(validation=False, urgency=1))] = Field(
        default=None,
        examples=["accuracy=0.97"],
        description="stop when a validation metric reaches a value: METRIC=VALUE, such as accuracy=0.97",
    )
    patience: Annotated[int | None, _free("length", LENGTH, idle(validation=False, urgency=1))] = Field(
        default=None,
        examples=[5],
        ge=1,
        description="early stopping: stop after this many validations in a row without improvement",
    )
    max_time: Annotated[str | None, BeforeValidator(number_as_text), _free("length")] = Field(
        default=None,
        examples=["2h"],
        description="time limit since the start of the command (in Python: of the call), such as 90 "
        "(seconds), 30m or 2h; before it is up, the run writes a checkpoint and exits with status 75",
    )

    # optimisation
    optimizer: Annotated[OptimizerName, _in("optimisation", WORK)] = Field(
        default="sgd", description="optimiser"
    )
    optimizer_params: Annotated[OptimizerParams, _in("optimisation", WORK)] = Field(
        default_factory=lambda: OptimizerParams(momentum=0.9),
        description="parameters of the optimiser, as YAML",
    )
    learning_rate: Annotated[float | None, _in("optimisation")] = Field(
        default=None,
        examples=[0.1],
        ge=0,
        description="peak learning rate, for any schedule (default: 0.1 if nothing else sets it)",
    )
    lr_schedule: Annotated[ScheduleName, _in("optimisation")] = Field(
        default="cosine", description="learning-rate schedule"
    )
    lr_schedule_params: Annotated[LrScheduleParams, _in("optimisation")] = Field(
        default_factory=LrScheduleParams, description="parameters of the schedule, as YAML"
    )
    lr_warmup_params: Annotated[LrWarmupParams | None, _in("optimisation", NOT_IN_VERIFY)] = Field(
        default=None,
        examples=[{"warmup_epochs": 1}],
        description='learning-rate warm-up, as YAML: \'{"warmup_mode": "shift", "warmup_epochs": 1}\'',
    )
    lr_staircase: Annotated[bool, _in("optimisation", NOT_IN_VERIFY)] = Field(
        default=False, description="change the learning rate once per epoch instead of at every update"
    )
    backbone_rate: Annotated[float, _in("optimisation", LATER, WORK)] = Field(
        default=1.0,
        examples=[0.1],
        gt=0,
        le=1,
        description="fine-tuning: learning rate of everything but the head, as a fraction of the head's",
    )
    layer_decay: Annotated[float, _in("optimisation", LATER, WORK)] = Field(
        default=1.0,
        examples=[0.75],
        gt=0,
        le=1,
        description="fine-tuning: the learning rate of each block is VALUE times that of the block after it; "
        "the head has the full rate",
    )
    head_first_epochs: Annotated[int, _in("optimisation", LATER, WORK, NOT_IN_VERIFY)] = Field(
        default=0,
        examples=[2],
        ge=0,
        description="fine-tuning: train only the head for this many epochs, then everything; 0: off",
    )
    weight_decay: Annotated[float, _in("optimisation", WORK)] = Field(
        default=0.0,
        ge=0,
        description="decoupled weight decay (sgd, adamw, rmsprop): an update subtracts learning rate x VALUE "
        "x weight",
    )
    l2_regularization: Annotated[float, _in("optimisation", WORK)] = Field(
        default=0.0, ge=0, description="L2 penalty: adds VALUE x weight to each gradient"
    )
    label_smoothing: Annotated[float, _in("optimisation", CLASSIFICATION, WORK)] = Field(
        default=0.0, ge=0, lt=1, description="fraction of the target spread evenly over all classes"
    )
    loss: Annotated[SegmentationLoss, _in("optimisation", SEGMENTATION, WORK)] = Field(
        default="softmax", description="segmentation: type of cross-entropy, added to the soft-Dice loss"
    )
    cross_entropy_weight: Annotated[float, _in("optimisation", SEGMENTATION)] = Field(
        default=1.0, ge=0, description="segmentation: weight of the cross-entropy in the loss"
    )
    dice_weight: Annotated[float, _in("optimisation", SEGMENTATION)] = Field(
        default=1.0, ge=0, description="segmentation: weight of 1 - soft Dice in the loss"
    )
    border_weight: Annotated[float, _in("optimisation", SEGMENTATION, WORK, IN_DELIVERY)] = Field(
        default=0.0,
        examples=[10],
        ge=0,
        description="segmentation: extra weight of pixels between close objects (U-Net paper: 10; 0: off)",
    )
    border_sigma: Annotated[
        float, _in("optimisation", SEGMENTATION, IN_DELIVERY, idle(border_weight=0, urgency=5))
    ] = Field(
        default=5.0,
        gt=0,
        description="segmentation: width in pixels of the extra weight between touching objects",
    )
    clip_norm: Annotated[float | None, _in("optimisation", WORK)] = Field(
        default=None,
        examples=[1.0],
        gt=0,
        description="clip the gradient to this Euclidean norm over all parameters (default: no clipping)",
    )
    loss_scaling: Annotated[LossScaling, _in("optimisation", WORK)] = Field(
        default=0.0,
        examples=["dynamic"],
        description="loss scaling: fixed factor (0: none), or dynamic: the largest factor without "
        "overflow; updates with gradients that are not finite are skipped",
    )
    ema: Annotated[float | None, _in("optimisation", WORK, NOT_IN_VERIFY)] = Field(
        default=None,
        examples=[0.999],
        gt=0,
        lt=1,
        description="decay of an exponential moving average of the weights, which is validated and saved",
    )
    class_weights: Annotated[tuple[str, ...], _in("optimisation", WORK)] = Field(
        default=(),
        examples=[("balanced",)],
        description="balanced (inverse class frequency), or one loss weight per class",
    )
    precision: Annotated[PrecisionName, _in("optimisation", COMPUTING, IN_INFERENCE)] = Field(
        default="auto",
        description="bits for computing and for weights; 16.32: compute in 16 bits, keep weights and "
        "optimiser state in 32 bits; auto: 16.32 on an accelerator with bfloat16, else 32.32",
    )
    half_type: Annotated[
        HalfType,
        _in("optimisation", COMPUTING, IN_INFERENCE, NOT_IN_VERIFY, idle(precision="32.32", urgency=5)),
    ] = Field(default="bfloat16", description="16-bit type used by --precision 16.32 and 16.16")
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
        default=False, description="round 16-bit weights up or down at random, without bias (16.16 only)"
    )
    half_partials: Annotated[
        bool, _in("optimisation", WORK, IN_INFERENCE, NOT_IN_VERIFY, idle(precision="32.32", urgency=5))
    ] = Field(default=False, description="accumulate 16-bit matrix products in 16 bits if the device can")
    precision_list: Annotated[
        PrecisionList | None, _in("optimisation", WORK, NOT_IN_VERIFY, idle(precision="32.32", urgency=5))
    ] = Field(
        default=None,
        examples=[{"half": ["conv", "linear"]}],
        description="YAML or JSON file with the layers that --precision 16.32 computes in 16 bits (half: "
        "[conv, linear]) and exceptions to them (float32: [head]); all other layers stay in float32",
    )
    memory_format: Annotated[MemoryFormat, _in("optimisation", LATER, WORK, IN_INFERENCE)] = Field(
        default="auto",
        description="layout of images and weights in memory; channels_last: faster convolutions; "
        "contiguous: torch's default; auto: channels_last, but contiguous if the model only runs in that",
    )
    fp_exceptions: Annotated[bool, _free("optimisation", NOT_IN_VERIFY)] = Field(
        default=False,
        description="stop at the first inf or nan and report its layer, update and samples; slow",
    )
    compile: Annotated[CompileMode, _free("optimisation", COMPUTING, IN_INFERENCE, NOT_IN_VERIFY)] = Field(
        default="auto",
        description="compile model, loss, augmentation and optimiser with torch.compile; auto: only if a "
        "measurement shows that it saves time in a training of this length",
    )
    deterministic: Annotated[bool, _free("optimisation", NOT_IN_VERIFY)] = Field(
        default=False,
        description="compute the same bits in every run on one kind of device: deterministic algorithms, and "
        "no choice by measured times; slower on accelerators",
    )
    capture: Annotated[CaptureMode, _free("optimisation", NOT_IN_VERIFY)] = Field(
        default="auto",
        description="record an update once and replay it (CUDA graph) if the device can; off: never",
    )

    # events
    logs_per_epoch: Annotated[
        str, BeforeValidator(number_as_text), _free("events", PACE, AlternativeFor("logs"))
    ] = Field(
        default="1", description="logs per epoch, such as 2, 0.5 or 1/3; 0: one log, at the end of training"
    )
    log_every: Annotated[int | None, _free("events", PACE, AlternativeFor("logs"))] = Field(
        default=None,
        examples=[50],
        ge=1,
        description="log every N updates (replaces --logs-per-epoch)",
    )
    steps_per_execution: Annotated[int | None, _free("events", PACE, AlternativeFor("logs"))] = Field(
        default=None,
        examples=[100],
        ge=1,
        description="length of an execution (the updates between two logs) in micro-batches of one replica "
        "(replaces --logs-per-epoch)",
    )
    evaluate_every: Annotated[int | None, _free("events", PACE, idle(validation=False, urgency=2))] = Field(
        default=None,
        examples=[100],
        ge=1,
        description="validate every N updates (default: once per epoch, or at every log if "
        "--logs-per-epoch is below 1; less often if validation would exceed a fifth of the training time)",
    )
    checkpoint_every: Annotated[int | None, _free("events", PACE, idle(checkpoints=False, urgency=7))] = (
        Field(
            default=None,
            examples=[100],
            ge=1,
            description="write a checkpoint every N updates (default: at every log)",
        )
    )
    best_by: Annotated[MetricName | None, _in("events", LATER, idle(validation=False, urgency=1))] = Field(
        default=None,
        examples=["iou"],
        description="validation metric that selects the best checkpoint, such as accuracy, loss, iou or "
        "iou_CLASS (default: accuracy; for segmentation dice, the soft Dice averaged over classes)",
    )

    # run
    seed: Annotated[int, _in("run", MEASURED)] = Field(
        default=0, ge=0, lt=2**63, description="random seed of the whole run"
    )
    device: Annotated[str, _free("run", PER_HOST, COMPUTING, MEASURED)] = Field(
        default="auto", description="device to run on: auto, cpu, or another torch device"
    )
    num_threads: Annotated[int | None, _free("run", PER_HOST, COMPUTING, MEASURED)] = Field(
        default=None, examples=[2], ge=1, description="CPU threads per process (default: torch's choice)"
    )
    output_dir: Annotated[PathText | None, _free("run", PER_HOST)] = Field(
        default=None, examples=["runs/mine"], description="run directory (default: runs/<recipe>-<hash>)"
    )
    training: Annotated[bool, _free("run", ONE_CALL)] = Field(
        default=True, description="train; False only validates the newest checkpoint"
    )
    validation: Annotated[bool, _free("run")] = Field(
        default=True, description="validate during and after training"
    )
    checkpoints: Annotated[bool, _free("run")] = Field(default=True, description="write checkpoints")
    keep_checkpoints: Annotated[int, _free("run", idle(checkpoints=False, urgency=8))] = Field(
        default=2, ge=1, description="number of newest checkpoints to keep, in addition to the best one"
    )
    predict_after: Annotated[tuple[PathText, ...], _free("run")] = Field(
        default=(),
        examples=[("test-volume.tif",)],
        description="images to predict when training has finished; results go to the run's predictions/",
    )
    clean_dir: Annotated[bool, _free("run", idle(checkpoints=False, urgency=7))] = Field(
        default=False, description="delete the checkpoints when the run has finished and been validated"
    )
    overwrite: Annotated[bool, _free("run", ONE_CALL)] = Field(
        default=False, description="delete an existing run in the run directory and start again"
    )
    log_dir: Annotated[PathText | None, _free("run", PER_HOST)] = Field(
        default=None,
        examples=["logs"],
        description="folder for all logs, in DIR/<run name>: TensorBoard, Weights & Biases, output of the "
        "ranks, and a copy of metrics.jsonl (default: the run directory)",
    )
    log_all_workers: Annotated[bool, _free("run", PER_HOST, idle(replicas=1, urgency=3, alone=True))] = Field(
        default=False,
        description="write full logs on every rank, not only on rank 0; with --tensorboard, rank N writes to "
        "worker_N/",
    )
    max_restarts: Annotated[int, _free("run", idle(replicas=1, urgency=3, alone=True))] = Field(
        default=0, ge=0, description="number of times failed ranks are restarted from the newest checkpoint"
    )
    parallel_folds: Annotated[int, _free("run")] = Field(
        default=1, ge=1, description="crossval: number of folds trained at the same time"
    )
    wandb: Annotated[bool, _free("run", PER_HOST)] = Field(
        default=False, description="also log to Weights & Biases (pip install wandb)"
    )
    verbosity: Annotated[Verbosity, _free("run", PER_HOST, COMPUTING, MEASURED)] = Field(
        default="normal", description="how much to print"
    )
    tensorboard: Annotated[bool, _free("run", PER_HOST)] = Field(
        default=False,
        description="also write TensorBoard logs, in the run directory or --log-dir",
    )

    @model_validator(mode="before")
    @classmethod
    def _momentum_is_of_sgd(cls, data: Any) -> Any:
        """Drops the default momentum when another optimiser than SGD is chosen."""
        if not isinstance(data, dict) or "optimizer_params" in data or "optimizer" not in data:
            return data
        if lower_text(data["optimizer"]) == "sgd":
            return data
        return {**data, "optimizer_params": {}}


check_notes(Recipe.model_fields)


def field_note(name: str) -> FieldNote:
    """The note attached to a recipe field."""
    return note_of(Recipe.model_fields[name])
