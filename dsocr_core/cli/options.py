"""Options from signatures: a parameter of a command is an option, its line under `Args:` the option's help.

    def status(directory: str, *, workers: bool = False) -> Answer:

Parameters before `*` are positional; those without a default are required. False is a flag, a tuple takes
several words, a dataclass stands for its fields, `Settings` for every setting. A whole number is at least 1
and another one above 0; one may be 0 where its default is, or marked FROM_ZERO. Options have dashes; the
underscores of the settings' names are taken too. `--help` shows the first `SHOWN` options and names the rest.
"""

from __future__ import annotations

import inspect
import re
import sys
from argparse import SUPPRESS, Action
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

import yaml
from docstring_parser import DocstringStyle, parse
from jsonargparse import ActionConfigFile, ArgumentParser, DefaultHelpFormatter, Namespace
from jsonargparse.typing import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs import BackendChoice
from dsocr_core.cli.answers import Answer
from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Settings

Command = Callable[..., Answer | None]
FROM_ZERO = "from zero"
"""Mark of a number that may be 0."""
ALL_PAGES = sys.maxsize
"""The number of `--pages-together` without one."""
SHOWN = 12
_SIDE_OPTIONS = {"run": ("backend",), "compare": ("a", "b")}
_TYPED = "typed"
"""The parameter that is no option: the command line that makes the run again."""
_TYPES = {int: (PositiveInt, NonNegativeInt), float: (PositiveFloat, NonNegativeFloat)}
_RESTRICTION = re.compile(r": Not of type \w+: (\S+) does not conform to restriction v>(=?)0")
_HELP = {
    "json": "print one JSON document and nothing else on stdout",
    "history": "where runs are: a path, relative to the project (default: data/runs/history)",
    "nvtx_only": "mark the stages for a profiler, measure nothing: no events, no clocks, no synchronisation",
}
"""Help of options that several commands have."""


class _Formatter(DefaultHelpFormatter):  # type: ignore[misc]
    """Help without types; options that may be left out are not in its first line."""

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any) -> str:
        shown = [each for each in actions if each.required or not each.option_strings]
        return str(super()._format_usage(usage, shown, [], prefix))

    def _get_help_string(self, action: Any) -> str:
        default = "" if action.default in (None, False, "", [], {}, SUPPRESS) else " (default: %(default)s)"
        return (action.help or "").replace("%", "%%").replace("%%(", "%(") + default


class _WholeHelp(Action):
    def __call__(self, parser: Any, *_: object) -> None:
        parser.whole = True
        parser.print_help()
        parser.exit()


class Parser(ArgumentParser):  # type: ignore[misc]
    """A parser with help on one screen, whose errors are as all others."""

    whole = False

    def __init__(self, **keywords: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Formatter, **keywords)

    def error(self, message: str, *_: Any, **__: Any) -> NoReturn:
        """Raises DsocrError."""
        words = re.sub(r'Parser key "([\w.]+)":', lambda key: f"--{key[1]}:".replace("_", "-"), message)
        words = _RESTRICTION.sub(r" is \1: give a number >\2 0", " ".join(words.split()))
        raise DsocrError(f"{words}; see: {self.prog.replace('[options] ', '')} --help")

    def format_help(self) -> str:
        """The first options, then the names of the others; all of them after `--help-all`."""
        options = [each for each in self._actions if each.option_strings]
        rest = [] if self.whole else [(each, each.help) for each in options[SHOWN + 1 :]]
        names = ", ".join(each.option_strings[0] for each, _ in rest)
        self.epilog = f"settings and other options, described by --help-all: {names}" if rest else None
        for each, _ in rest:
            each.help = SUPPRESS
        text = str(super().format_help())
        for each, words in rest:
            each.help = words
        return text


def take_sides(words: Sequence[str]) -> tuple[list[str], dict[str, list[BackendChoice]]]:
    """A command line with dashes in its options and a number behind `--pages-together`, and, by option, the
    backends that were in it, each with the settings behind it: `--a eager --a.dtype float32`. A word for each
    stays for the parser. Raises DsocrError.
    """
    names = _SIDE_OPTIONS.get(next((word for word in words if not word.startswith("-")), ""), ())
    others, rest, sides = list[str](), list(words), dict[str, list[Any]]()
    while rest and rest[0] != "--":
        option, equals, value = rest.pop(0).partition("=")
        name, dot, setting = option.removeprefix("--").partition(".")
        if not option.startswith("--") or name not in names:
            option = option.replace("_", "-") if option.startswith("--") else option
            alone = option == "--pages-together" and not equals and not (rest and rest[0].isdecimal())
            others.append(f"{option}={ALL_PAGES}" if alone else option + equals + value)
            continue
        if not equals and not rest:
            raise DsocrError(f"{option}: expected a value")
        read: Any = value if equals else rest.pop(0)
        if not dot:
            sides.setdefault(name, []).append({"spec": read})
            others.append(f"--{name}={read}")
            continue
        if name not in sides:
            raise DsocrError(f"{option} comes before --{name}: name the backend first")
        if setting.startswith("body."):  # of any content
            with suppress(yaml.YAMLError, RecursionError):
                read = yaml.safe_load(read)
        else:
            setting = setting.replace("-", "_")
        sides[name][-1][setting] = read
    plain = {name: [each["spec"] if len(each) == 1 else each for each in of] for name, of in sides.items()}
    return others + rest, plain


class _Parameter(NamedTuple):
    """A parameter: `item` is the type of one word, `marks` are FROM_ZERO or settings that are left out."""

    name: str
    item: Any
    several: bool
    marks: tuple[Any, ...]
    default: Any
    positional: bool
    help: str


def _parameters(of: Any) -> Iterator[_Parameter]:
    """Parameters of a function or fields of a dataclass, without `_TYPED`."""
    words = dict(_HELP)
    for each in reversed(of.__mro__ if inspect.isclass(of) else (of,)):
        parsed = parse(each.__doc__ or "", DocstringStyle.GOOGLE)
        words |= {line.arg_name: line.description or "" for line in parsed.params}
    hints = get_type_hints(of, include_extras=True)
    for name, each in inspect.signature(of).parameters.items():
        if name == _TYPED:
            continue
        hint, *marks = get_args(hints[name]) if get_origin(hints[name]) is Annotated else [hints[name]]
        if get_origin(hint) in (Union, UnionType):
            hint = Union[tuple(kind for kind in get_args(hint) if kind is not NoneType)]  # noqa: UP007
        several, positional = get_origin(hint) is tuple, each.kind is not each.KEYWORD_ONLY
        item, help_ = get_args(hint)[0] if several else hint, " ".join(words.get(name, "").split())
        yield _Parameter(name, item, several, tuple(marks), each.default, positional, help_)


def add_command(commands: Any, name: str, command: Command) -> None:
    """Add the parser of a command; the first sentence of its docstring stands in the list of commands."""
    parsed = parse(command.__doc__ or "", DocstringStyle.GOOGLE)
    parser = add_parser(commands, name, f"{parsed.short_description} {parsed.long_description or ''}")
    if get_type_hints(command)["return"] is Answer:
        parser.add_argument("--json", action="store_true", help=_HELP["json"])
    _add_options(parser, command)
    if sum(bool(each.option_strings) for each in parser._actions) > SHOWN + 1:
        parser.add_argument("--help-all", action=_WholeHelp, nargs=0, help="describe every option")


def add_parser(commands: Any, name: str, description: str) -> Parser:
    """Add a parser without options."""
    words = " ".join(description.split())
    parser = Parser(description=words, print_config="--print-config")
    commands.add_subcommand(name, parser, help=words.partition(". ")[0].rstrip("."))
    return parser


def _add_options(parser: Parser, of: Any) -> None:
    """Add an option for each parameter of a function or each field of a dataclass; settings come last."""
    for each in sorted(_parameters(of), key=lambda each: each.item is Settings):
        if each.item is Settings:
            add_settings(parser, each.marks)
        elif is_dataclass(each.item):
            _add_options(parser, each.item)
        else:
            word = each.name if each.positional else f"--{each.name.rstrip('_').replace('_', '-')}"
            parser.add_argument(word, help=each.help, **_keywords(each))


def _keywords(each: _Parameter) -> dict[str, Any]:
    """Words of argparse for an option."""
    if each.item is bool:
        return {"action": "store_true"}
    required = each.default is inspect.Parameter.empty
    above, from_zero = _TYPES.get(each.item, (each.item, each.item))
    known = from_zero if each.default == 0 or FROM_ZERO in each.marks else above
    keywords: dict[str, Any] = {"type": str if each.item in (BackendChoice, Path) else known}
    optional = each.positional and not required
    if each.several or optional:
        keywords["nargs"] = ("*" if optional else "+") if each.several else "?"
    if each.several and not each.positional and not each.default:
        keywords["action"] = "extend"  # it may be repeated
    if each.positional:
        keywords["metavar"] = each.name.upper()
    if not required:
        keywords["default"] = list(each.default) if each.several else each.default
    elif not each.positional:
        keywords["required"] = True
    return keywords


def add_settings(parser: ArgumentParser, skip: Sequence[str] = ()) -> None:
    """Add an option for each setting, and a YAML file of them. `take_sides` has those of backends."""
    words = "YAML file of settings; options win over it"
    parser.add_argument("--config", action=ActionConfigFile, help=words)
    parser.add_class_arguments(Settings, None, skip={*skip, *SIDES})
    for option in [option for option in parser._option_string_actions if "_" in option]:
        action = parser._option_string_actions.pop(option)
        parser._option_string_actions[option.replace("_", "-")] = action
        action.option_strings = [each.replace("_", "-") for each in action.option_strings]


def chosen_arguments(of: Any, chosen: Namespace) -> dict[str, Any]:
    """Arguments for the function or dataclass `of`, from the parsed options. Raises DsocrError."""
    values: dict[str, Any] = {}
    for each in _parameters(of):
        if each.item is Settings:
            values[each.name] = settings_of(chosen, each.marks)
        elif is_dataclass(each.item):
            values[each.name] = each.item(**chosen_arguments(each.item, chosen))  # type: ignore[operator]
        else:
            value = chosen[each.name.rstrip("_")]
            made = each.item if each.item in (Path, int, float) and value is not None else lambda same: same
            values[each.name] = tuple(map(made, value)) if each.several else made(value)
    return values


def settings_of(chosen: Namespace, skip: Sequence[str] = ()) -> Settings:
    """Settings from the options that `add_settings` added. Raises DsocrError."""
    names = Settings.__dataclass_fields__.keys() - {*skip, *SIDES}
    return Settings(**{name: chosen[name] for name in names})
