"""Command-line options generated from the recipe's schema, and a parser whose errors are one sentence."""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from drivetrain.auto.configure import Asked, Rules, configure, typed_by_field
from drivetrain.cli.parsing.sentences import missing_value, refused_choice, refused_value
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean
from drivetrain.recipe.aliases import ALIASES, refusal_of
from drivetrain.recipe.fields import choices_of, default_values, kind_of, option_name, written_value
from drivetrain.recipe.load import ResolvedRecipe, read_recipe_yaml, resolve_recipe
from drivetrain.recipe.schema import GROUPS, Recipe, field_note

_OVERRIDES = "recipe_overrides"
_METAVARS = {
    "switch": "BOOL",
    "switch_or_path": "PATH",
    "whole": "INT",
    "number": "NUMBER",
    "text": "TEXT",
    "mapping": "YAML",
    "several": "TEXT",
}
_FLAG = {"nargs": "?", "const": "true"}
_ARITIES = {"switch": _FLAG, "switch_or_path": _FLAG, "several": {"nargs": "+"}}
_NO_VALUE = re.compile(r"argument (--[^\s/]+)\S*: expected (?:one|at least one) argument")
_REWRITTEN = (
    (re.compile(r"the following arguments are required: (.+)"), r"\1 is missing."),
    (
        re.compile(r"argument (\S+): not allowed with argument (\S+)"),
        r"\1 and \2 cannot both be given; leave one out.",
    ),
    (re.compile(r"argument (.+)"), r"\1."),
)


class _RecipeFormatter(argparse.HelpFormatter):
    """A help formatter whose usage line omits the recipe's options; they are listed in groups below."""

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        kept = [action for action in actions if not isinstance(action, _StoreRecipeOption)]
        super().add_usage(usage, kept, groups, prefix)


class OneSentenceParser(argparse.ArgumentParser):
    """An argument parser without abbreviated options; every error is one sentence with exit status 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _RecipeFormatter, **settings})
        # argparse's own pattern (Python 3.11) does not match -1e-3, which it would take for an option.
        self._negative_number_matcher = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")

    def error(self, message: str) -> NoReturn:
        """Prints one sentence on stderr and exits with status 2."""
        self.exit(2, f"{self.prog}: error: {self._sentence(message)}\n")

    def _sentence(self, message: str) -> str:
        alone = _NO_VALUE.fullmatch(message)
        if alone is None:
            return _rewritten(message)
        return missing_value(self._option_string_actions[alone[1]], name=alone[1])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            self.error(refused_choice(action, value))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            self.error(refused_value(action, arg_string) or str(error))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuses unknown options first, and suggests the nearest known one."""
        if self._subparsers is None:
            self._refuse_unknown_options(args or ())
        parsed, extras = super().parse_known_args(args, namespace)
        if extras:
            self._refuse_extra(extras[0])
        return parsed, extras

    def _refuse_unknown_options(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            if token == "--":
                return
            name = token.partition("=")[0]
            if name.startswith("--") and " " not in name and name not in self._option_string_actions:
                self._refuse_extra(name)

    def _refuse_extra(self, token: str) -> NoReturn:
        if not token.startswith("-"):
            self.error(f"{token} is an unexpected argument; leave it out.")
        name = token.lstrip("-")
        known = [option[2:] for option in self._option_string_actions if option.startswith("--")]
        self.error(refusal_of(name) or f"{token} is not an option.{did_you_mean(name, known, prefix='--')}")


def _rewritten(message: str) -> str:
    line = " ".join(message.split())
    for pattern, sentence in _REWRITTEN:
        if pattern.fullmatch(line):
            return pattern.sub(sentence, line)
    return line


class _StoreRecipeOption(argparse.Action):
    """Stores a recipe option as typed, apart from the command's own arguments; the last one counts."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        earlier: Mapping[str, Any] = getattr(namespace, _OVERRIDES, {})
        kept = {key: value for key, value in earlier.items() if key != self.dest}
        setattr(namespace, _OVERRIDES, {**kept, self.dest: values})


def normalise_argv(argv: Sequence[str]) -> list[str]:
    """Replaces underscores in option names by dashes, up to a bare `--`."""
    end = list(argv).index("--") if "--" in argv else len(argv)
    return [*map(_kebab, argv[:end]), *argv[end:]]


def _kebab(token: str) -> str:
    name, equals, value = token.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if re.fullmatch(r"--\w[\w-]*", name) else token


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """Adds every field of the recipe as an option, in groups, and --config and --config-path."""
    named = parser.add_argument_group(
        "recipe",
        "Without --config, --model and --dataset, the recipe synthetic_em runs. A segmentation model or data "
        "set alone takes its other options from synthetic_em, a classification one from the defaults below.",
    )
    named.add_argument("--config", metavar="NAME", help="named recipe, see `drivetrain recipes list`")
    named.add_argument(
        "--config-path", metavar="FILE", help="YAML file with one recipe, or several; --config chooses one"
    )
    for group in GROUPS:
        section = parser.add_argument_group(group)
        for field in Recipe.model_fields:
            if field_note(field).group == group:
                add_field_option(section, field, help_text=_help_text(field))
    for alias, target in ALIASES.items():
        add_field_option(
            parser,
            target.field,
            dest=alias,
            help_text=argparse.SUPPRESS,
            is_switch=target.switch is not None,
        )


def add_field_option(
    container: argparse._ActionsContainer,
    field: str,
    *,
    help_text: str,
    dest: str | None = None,
    model: type[BaseModel] = Recipe,
    is_switch: bool = False,
) -> None:
    """Adds one field as an option; `dest` gives it another name. Values stay text until resolved."""
    info = model.model_fields[field]
    kind = "switch" if is_switch else kind_of(info)
    arity: dict[str, Any] = _ARITIES.get(kind, {})
    container.add_argument(
        option_name(dest or field),
        dest=dest or field,
        action=_StoreRecipeOption,
        default=argparse.SUPPRESS,
        metavar=_metavar(info),
        help=help_text,
        **arity,
    )


def _metavar(info: FieldInfo) -> str:
    kind = kind_of(info)
    return "{" + ",".join(choices_of(info)) + "}" if kind == "choice" else _METAVARS[kind]


def _help_text(field: str) -> str:
    description = Recipe.model_fields[field].description or ""
    default = default_values()[field]
    shown = "" if default in (None, {}, ()) else f" (default: {written_value(default)})"
    return (description + shown).replace("%", "%%")


def typed_overrides(args: argparse.Namespace) -> Mapping[str, Any]:
    """The recipe options that were typed, by the names under which they were typed."""
    typed: Mapping[str, Any] = getattr(args, _OVERRIDES, {})
    return typed


def replace_overrides(args: argparse.Namespace, overrides: Mapping[str, Any]) -> None:
    """Replaces the recipe options that were typed."""
    setattr(args, _OVERRIDES, dict(overrides))


def recipe_from_args(
    args: argparse.Namespace,
    *,
    base: Mapping[str, Any] | None = None,
    rules: Rules | None = None,
    keeps_stdout: bool = False,
) -> ResolvedRecipe:
    """The recipe of the parsed arguments; `base` is the recipe of the run that they continue.

    With `rules`, options that were not typed may be chosen from the user's data. `keeps_stdout`: what is
    found out meanwhile is shown on stderr.
    """
    asked = Asked(
        overrides=typed_overrides(args),
        config=args.config,
        config_path=args.config_path,
        base=base,
        rules=rules,
    )
    is_quiet = rules is not None and rules.is_quiet

    def reporter(recipe: Recipe) -> Reporter:
        return Reporter(verbosity=recipe.verbosity, quiet=is_quiet, to_stderr=keeps_stdout)

    return configure(asked, reporter=reporter)


def continued_recipe(args: argparse.Namespace, *, rules: Rules) -> ResolvedRecipe:
    """The recipe of a command; if no recipe is named, that of the run in --output-dir is continued."""
    stored = None if args.config is not None or args.config_path is not None else _stored_recipe(args, rules)
    if stored is not None:
        return recipe_from_args(args, base=read_recipe_yaml(stored))
    return recipe_from_args(args, rules=rules)


def _stored_recipe(args: argparse.Namespace, rules: Rules) -> Path | None:
    """The recipe of the run in the typed --output-dir; the other options are for that recipe to check."""
    typed = typed_by_field(typed_overrides(args))
    if "output_dir" not in typed:
        return None
    place = {name: typed[name] for name in ("output_dir", "overwrite") if name in typed}
    recipe = resolve_recipe(overrides=place).recipe
    if recipe.output_dir is None or recipe.overwrite:
        return None
    return rules.stored_recipe(Path(recipe.output_dir))


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Adds the folder that may stand in place of --data-dir."""
    parser.add_argument(
        "directory",
        nargs="?",
        metavar="DIR",
        help="folder with your data, which is recognised: the same as --data-dir DIR without --dataset",
    )


def take_directory(args: argparse.Namespace) -> None:
    """Makes DIR the --data-dir of the arguments; refuses both."""
    typed = typed_overrides(args)
    if args.directory is None:
        return
    given = next((name for name in ("data_dir", "dataset_path") if name in typed), None)
    if given is not None:
        raise BadInputError(
            f"{option_name(given)} {typed[given]} and DIR {args.directory} both name a folder; keep one."
        )
    replace_overrides(args, {**typed, "data_dir": args.directory})
