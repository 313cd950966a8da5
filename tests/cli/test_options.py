"""The options made from the schema: spelling, values, help, and one sentence for every mistake."""

from collections.abc import Sequence

import pytest
from pydantic import BaseModel, Field

from drivetrain.cli.options import (
    OneSentenceParser,
    add_field_option,
    add_recipe_options,
    normalise_argv,
    recipe_from_args,
)
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import GROUPS, Recipe


def _parser() -> OneSentenceParser:
    parser = OneSentenceParser(prog="drivetrain test")
    parser.add_argument("--output", metavar="DIR")
    add_recipe_options(parser)
    return parser


def _resolve(argv: Sequence[str]) -> ResolvedRecipe:
    return recipe_from_args(_parser().parse_args(normalise_argv(argv)))


@pytest.mark.parametrize(
    ("argv", "normal"),
    [
        (["--micro_batch_size", "8"], ["--micro-batch-size", "8"]),
        (["--output_dir=my_run"], ["--output-dir=my_run"]),
        (["--output-dir", "my_run"], ["--output-dir", "my_run"]),
        (["--", "--a_b"], ["--", "--a_b"]),
        (["--a_b", "--", "--a_b"], ["--a-b", "--", "--a_b"]),
        (["run_1", "-x_y", "--model-params", "{a_b: 1}"], ["run_1", "-x_y", "--model-params", "{a_b: 1}"]),
        ([], []),
    ],
)
def test_underscores_become_dashes_in_names_alone(argv: list[str], normal: list[str]) -> None:
    assert normalise_argv(argv) == normal


def test_every_field_is_an_option_with_help() -> None:
    page = _parser().format_help()
    for field in Recipe.model_fields:
        assert f"--{field.replace('_', '-')} " in page, field
    for group in GROUPS:
        assert f"\n{group}:\n" in page
    assert "(default: 32)" in page.replace("\n", " ").replace("                        ", "")
    assert "--config NAME" in page
    assert "--num-replicas" not in page


def test_the_usage_line_stays_short() -> None:
    assert len(_parser().format_usage().splitlines()) <= 3


def test_values_reach_the_recipe() -> None:
    resolved = _resolve(
        [
            "--micro_batch_size=8",
            "--learning-rate",
            "1e-2",
            "--optimizer-params",
            '{"momentum": 0.5}',
            "--output",
            "x",
        ]
    )
    recipe = resolved.recipe
    assert (recipe.micro_batch_size, recipe.learning_rate, recipe.optimizer_params.momentum) == (8, 0.01, 0.5)
    assert resolved.origins["micro_batch_size"] == "command line"
    assert resolved.origins["seed"] == "default"


def test_parsing_twice_keeps_nothing() -> None:
    parser = _parser()
    assert recipe_from_args(parser.parse_args(["--seed", "3"])).recipe.seed == 3
    assert recipe_from_args(parser.parse_args(["--dataset", "digits"])).recipe == Recipe()


@pytest.mark.parametrize(
    ("argv", "tensorboard"),
    [
        (["--tensorboard"], True),
        (["--tensorboard", "True"], True),
        (["--tensorboard=on"], True),
        (["--tensorboard", "Y"], True),
        (["--tensorboard", "1"], True),
        (["--tensorboard", "f"], False),
        (["--tensorboard", "OFF"], False),
        (["--tensorboard=0"], False),
        (["--tensorboard", "--seed", "1"], True),
        (["--tensorboard", "--tensorboard", "no"], False),
    ],
)
def test_switches(argv: list[str], tensorboard: bool) -> None:
    assert _resolve(argv).recipe.tensorboard is tensorboard


@pytest.mark.parametrize(
    ("argv", "pretrained"),
    [
        ([], False),
        (["--pretrained"], True),
        (["--pretrained", "--seed", "1"], True),
        (["--pretrained", "True"], True),
        (["--pretrained=off"], False),
        (["--pretrained", "weights.pth"], "weights.pth"),
        (["--pretrained=runs/Other"], "runs/Other"),
        (["--pretrained", "--pretrained", "no"], False),
    ],
)
def test_a_switch_that_takes_a_path_too(argv: list[str], pretrained: bool | str) -> None:
    args = _parser().parse_args(["--dataset", "digits", *argv])
    if pretrained is not True:
        assert recipe_from_args(args).recipe.pretrained == pretrained
        return
    with pytest.raises(BadInputError, match="--pretrained alone needs a library's model"):
        recipe_from_args(args)


@pytest.mark.parametrize(
    ("argv", "checkpoints"),
    [
        (["--disable-ckpt-saving"], False),
        (["--disable_ckpt_saving", "False"], True),
        (["--disable-ckpt-saving", "--disable-ckpt-saving", "False"], True),
        (["--disable-ckpt-saving", "--checkpoints", "False"], False),
    ],
)
def test_the_last_value_of_a_spelling_counts(argv: list[str], checkpoints: bool) -> None:
    assert _resolve(argv).recipe.checkpoints is checkpoints


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["--loss-scaling", "128", "--auto-loss-scaling", "True"],
            "--loss-scaling 128 and --auto-loss-scaling True both set --loss-scaling, to different values; "
            "keep one.",
        ),
        (
            ["--lr", "0.1", "--learning-rate", "0.2"],
            "--lr 0.1 and --learning-rate 0.2 both set --learning-rate, to different values; keep one.",
        ),
        (
            ["--checkpoints", "True", "--disable-ckpt-saving"],
            "--checkpoints True and --disable-ckpt-saving true both set --checkpoints, to different values; "
            "keep one.",
        ),
    ],
)
def test_two_spellings_must_not_contradict_each_other(argv: list[str], sentence: str) -> None:
    with pytest.raises(BadInputError) as caught:
        _resolve(argv)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--lr", "0.1", "--learning-rate", "1e-1"], "learning_rate", 0.1),
        (["--lr", "0.1", "--lr", "0.2"], "learning_rate", 0.2),
        (["--loss-scaling", "Dynamic", "--auto-loss-scaling"], "loss_scaling", "dynamic"),
        (["--loss-scaling", "0", "--auto-loss-scaling", "False"], "loss_scaling", 0.0),
    ],
)
def test_two_spellings_of_one_value_are_allowed(argv: list[str], field: str, value: object) -> None:
    assert getattr(_resolve(argv).recipe, field) == value


def test_aliases_reach_their_field() -> None:
    recipe = _resolve(["--batch_size", "4", "--lr", "0.2", "--epochs", "2", "--max_steps", "7"]).recipe
    assert (recipe.micro_batch_size, recipe.learning_rate, recipe.num_epochs, recipe.max_updates) == (
        4,
        0.2,
        2,
        7,
    )


def test_configurations_are_overridden() -> None:
    resolved = _resolve(["--config", "mnist_tutorial", "--num-epochs", "1"])
    assert (resolved.name, resolved.recipe.num_epochs, resolved.recipe.model) == (
        "mnist_tutorial",
        1,
        "mnist_cnn",
    )


def test_the_recipe_of_a_run_is_the_base() -> None:
    args = _parser().parse_args(["--num-epochs", "3"])
    resolved = recipe_from_args(args, base={"num_epochs": 2, "seed": 5})
    assert (resolved.recipe.num_epochs, resolved.recipe.seed) == (3, 5)
    assert resolved.origins["seed"] == "run directory"


def test_negative_numbers_are_values() -> None:
    assert _resolve(["--weight-updates-per-epoch", "-1"]).recipe.weight_updates_per_epoch == -1
    with pytest.raises(BadInputError, match="--learning-rate is -1e-3, it must be at least 0"):
        _resolve(["--lr", "-1e-3"])


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--micro-batch-siz", "3"], "--micro-batch-siz is not an option. Did you mean --micro-batch-size?"),
        (["--outptu", "x"], "--outptu is not an option. Did you mean --output?"),
        (["--micro-batch", "3"], "--micro-batch is not an option. Did you mean --micro-batch-size?"),
        (["--wrong-arg"], "--wrong-arg is not an option."),
        (["--zzzz=3"], "--zzzz is not an option."),
        (["-lr", "3"], "-lr is not an option. Did you mean --lr?"),
        (["--seed"], "--seed needs a value; --seed 0 works."),
        (["--seed", "--shuffle"], "--seed needs a value; --seed 0 works."),
        (["--lr"], "--lr needs a value; --lr 0.1 works."),
        (["--output"], "--output needs a value."),
        (["here"], "here is an unexpected argument; leave it out."),
        (["--gather_conv_output", "True"], "--gather-conv-output has no counterpart here: "),
        (
            ["--available-memory-proportion", "15", "20"],
            "--available-memory-proportion has no counterpart here: ",
        ),
        (
            ["--on-demand"],
            "--on-demand has no counterpart here: devices are acquired when the run starts, leave it out.",
        ),
    ],
)
def test_mistakes_are_one_sentence(
    capsys: pytest.CaptureFixture[str], argv: list[str], sentence: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        _parser().parse_args(normalise_argv(argv))
    assert stop.value.code == 2
    written = capsys.readouterr()
    assert written.err.startswith(f"drivetrain test: error: {sentence}")
    assert written.err.count("\n") == 1
    assert written.out == ""


def test_an_unknown_option_comes_before_a_missing_argument(capsys: pytest.CaptureFixture[str]) -> None:
    parser = OneSentenceParser(prog="p")
    parser.add_argument("run", metavar="RUN")
    with pytest.raises(SystemExit):
        parser.parse_args(["--foo"])
    assert capsys.readouterr().err == "p: error: --foo is not an option.\n"
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert capsys.readouterr().err == "p: error: RUN is missing.\n"


def test_a_wrong_boolean_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="--shuffle: maybe is not a valid boolean value"):
        _resolve(["--shuffle", "maybe"])


class _WithSeveral(BaseModel):
    splits: tuple[str, ...] = Field(default=(), description="names")


def test_several_values() -> None:
    parser = OneSentenceParser(prog="p")
    add_field_option(parser, "splits", help_text="names", model=_WithSeveral)
    args = parser.parse_args(["--splits", "a", "b"])
    assert _WithSeveral.model_validate(args.recipe_overrides).splits == ("a", "b")
