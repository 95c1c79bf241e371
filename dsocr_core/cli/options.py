"""Options from signatures: a parameter of a command is an option, its line under `Args:` the option's help.

    def status(directory: str, *, json: bool = False, console: Console) -> int:

What stands before `*` is positional; what has no default is required. False is a flag, a tuple takes several
words, a dataclass stands for its fields and `Settings` for every setting. A whole number is at least 1 and
another one above 0, unless the default is 0 or `Annotated` names the least. `GIVEN` are no options.
Options have dashes; the underscores of the settings' names are taken too.
"""

from __future__ import annotations

import inspect
import sys
from argparse import SUPPRESS
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from docstring_parser import DocstringStyle, parse
from jsonargparse import ActionConfigFile, ArgumentParser, DefaultHelpFormatter, Namespace

from dsocr_core.base.console import OK, cancelled_by_interrupt
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import visible
from dsocr_core.base.specs.parsing import BackendChoice
from dsocr_core.cli.sides import choice_of
from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Settings, SettingsError

GIVEN = ("console", "typed", "cancel")
"""No options: `typed` is the command line that makes the run again, Ctrl-C sets `cancel`."""

GOOGLE = DocstringStyle.GOOGLE
_HELP = {
    "json": "print one JSON document and nothing else on stdout",
    "history": "where runs are: a path, relative to the project (default: data/runs/history)",
    "nvtx_only": "mark the stages for a profiler, measure nothing: no events, no clocks, no synchronisation",
}
"""Words of parameters that several commands have, where a command has no others."""

Command = Callable[..., int | None]
AnyNumber = Annotated[int, 0]
"""A whole number from 0."""


@dataclass(frozen=True)
class Alone:
    """Mark of an option that may stand without its value, which is then this one."""

    value: int


PagesTogether = Annotated[int | None, 1, Alone(sys.maxsize)]
"""Most pages of a prompt; standing alone, all of a document."""


class ShortHelp(DefaultHelpFormatter):  # type: ignore[misc]
    """Help without types; options that may be left out are not in its first line."""

    def _format_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any) -> str:
        shown = [each for each in actions if each.required or not each.option_strings]
        return str(super()._format_usage(usage, shown, [], prefix))

    def _get_help_string(self, action: Any) -> str:
        words = (action.help or "").replace("%", "%%") if "%(" not in (action.help or "") else action.help
        default = "" if action.default in (None, False, "", [], {}, SUPPRESS) else " (default: %(default)s)"
        return f"{words}{default}"


class SafeParser(ArgumentParser):  # type: ignore[misc]
    """A parser whose errors cannot steer the terminal: in `dsocr run *` a file's name may be an option."""

    def error(self, message: str, *others: Any, **more: Any) -> None:
        """Print the message and leave."""
        super().error(visible(message), *others, **more)


def with_dashes(words: Sequence[str]) -> list[str]:
    """Words of a command line, their options spelled with dashes. Keeps what follows `--`.

    An option that may stand alone does so before a page as well.
    """
    end = words.index("--") if "--" in words else len(words)
    found = []
    for word, following in zip(words[:end], [*words[1:end], ""], strict=True):
        option, equals, value = word.partition("=")
        spelled = (option.replace("_", "-") if word.startswith("--") else option) + equals + value
        if spelled == "--pages-together" and not following.isdecimal():
            spelled += f"={sys.maxsize}"
        found.append(spelled)
    return found + list(words[end:])


def require_packages(what: str, packages: Sequence[str], file: str) -> None:
    """Raises DsocrError, which names the requirements' file, for packages that are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise DsocrError(f"{what} needs {' and '.join(missing)}: pip install -r {file}")


# --- what a signature says ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parameter:
    name: str
    hint: Any
    """Its type without None and `Annotated`."""
    marks: tuple[Any, ...]
    """Marks of `Annotated`: the least number, or settings that are left out."""
    default: Any
    """`inspect.Parameter.empty` where it is required."""
    positional: bool
    help: str

    @property
    def option(self) -> str:
        """The word on the command line."""
        return f"--{self.name.rstrip('_').replace('_', '-')}"

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def _parameters(of: Any) -> Iterator[_Parameter]:
    """Parameters of a function or fields of a dataclass, without `GIVEN`."""
    documented = [each.__doc__ or "" for each in (of.__mro__ if inspect.isclass(of) else (of,))]
    words: dict[str, str] = {}
    for text in reversed(documented):
        words |= {each.arg_name: each.description or "" for each in parse(text, GOOGLE).params}
    hints = get_type_hints(of, include_extras=True)
    for name, parameter in inspect.signature(of).parameters.items():
        if name not in GIVEN:
            hint, marks = _plain(hints[name])
            said = " ".join(words.get(name, _HELP.get(name, "")).split())
            positional = parameter.kind is not parameter.KEYWORD_ONLY
            yield _Parameter(name, hint, marks, parameter.default, positional, said)


def _plain(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without None and `Annotated`, and what was said there."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return _plain(inner)[0], tuple(marks)
    if get_origin(hint) in (Union, UnionType):
        inner = tuple(each for each in get_args(hint) if each is not NoneType)
        return Union[inner], ()  # noqa: UP007 - of types that are known when it runs
    return hint, ()


# --- its options ----------------------------------------------------------------------------------


def add_command(commands: Any, name: str, command: Command) -> None:
    """Add the parser of a command; the first sentence of its docstring stands in the list of commands."""
    add_options(add_parser(commands, name, _description(command)), command)


def add_parser(commands: Any, name: str, description: str) -> ArgumentParser:
    """Add a parser without options."""
    parser = SafeParser(description=description, allow_abbrev=False, print_config="--print-config")
    commands.add_subcommand(name, parser, help=description.partition(". ")[0].rstrip("."))
    return parser


def _description(command: Command) -> str:
    """The docstring up to its arguments, without what it says to callers."""
    parsed = parse(command.__doc__ or "", GOOGLE)
    return " ".join(f"{parsed.short_description} {parsed.long_description or ''}".split())


def add_options(parser: ArgumentParser, of: Any) -> None:
    """Add an option for each parameter of a function or each field of a dataclass."""
    for each in _parameters(of):
        if each.hint is Settings:
            add_settings(parser, each.marks)
        elif is_dataclass(each.hint):
            add_options(parser, each.hint)
        else:
            word = each.name if each.positional else each.option
            parser.add_argument(word, help=each.help, **_keywords(each))


def _keywords(each: _Parameter) -> dict[str, Any]:
    """Give argparse's words for the option."""
    if each.hint is bool:
        return {"action": "store_true"}
    keywords: dict[str, Any] = {"type": each.hint}
    if get_origin(each.hint) is tuple:
        element, *others = get_args(each.hint)
        keywords["type"] = element
        if others != [...]:
            keywords["nargs"] = 1 + len(others)
        elif each.default is None or (each.default == () and each.positional):
            keywords["nargs"] = "*"
        elif each.default == ():
            keywords |= {"nargs": "+", "action": "extend"}  # it may be repeated as well
        else:
            keywords["nargs"] = "+"
    elif each.positional and not each.required:
        keywords["nargs"] = "?"
    for mark in each.marks:
        keywords |= {"nargs": "?", "const": mark.value} if isinstance(mark, Alone) else {}
    if keywords["type"] in (BackendChoice, Path):
        keywords["type"] = str
    if each.positional:
        keywords["metavar"] = each.name.upper()
    if not each.required:
        keywords["default"] = list(each.default) if isinstance(each.default, tuple) else each.default
    elif not each.positional:
        keywords["required"] = True
    return keywords


def add_settings(parser: ArgumentParser, skip: Sequence[str] = ()) -> None:
    """Add an option for each setting, and a YAML file of them; `cli.sides` adds those that name a backend."""
    parser.add_argument(
        "--config", action=ActionConfigFile, help="YAML file of settings; options win over it"
    )
    parser.add_class_arguments(Settings, None, skip={*skip, *SIDES})
    for option in [option for option in parser._option_string_actions if "_" in option]:
        action = parser._option_string_actions.pop(option)
        parser._option_string_actions[option.replace("_", "-")] = action
        action.option_strings = [each.replace("_", "-") for each in action.option_strings]


# --- what was given -------------------------------------------------------------------------------


def call(command: Command, chosen: Namespace, **given: Any) -> int:
    """Call a command with the options that were chosen; returns its exit code. Raises DsocrError."""
    wanted = inspect.signature(command).parameters
    with ExitStack() as stack:
        if "cancel" in wanted:
            given["cancel"] = stack.enter_context(cancelled_by_interrupt())
        code = command(**_values(command, chosen), **{name: given[name] for name in GIVEN if name in wanted})
    return OK if code is None else code


def _values(of: Any, chosen: Namespace) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in _parameters(of):
        if each.hint is Settings:
            values[each.name] = settings_of(chosen, each.marks)
        elif is_dataclass(each.hint):
            kind: Any = each.hint
            values[each.name] = kind(**_values(kind, chosen))
        else:
            values[each.name] = _value(each, chosen[each.name.rstrip("_")])
    return values


def settings_of(chosen: Namespace, skip: Sequence[str] = ()) -> Settings:
    """The settings that `add_settings` made options of. Raises DsocrError."""
    return Settings(
        **{name: chosen[name] for name in Settings.__dataclass_fields__ if name not in {*skip, *SIDES}}
    )


def _value(each: _Parameter, value: Any) -> Any:
    """A value as the command takes it. Raises SettingsError for a number that is too small, DsocrError."""
    if value is None:
        return None
    if get_origin(each.hint) is tuple:
        return tuple(_converted(get_args(each.hint)[0], item) for item in value)
    if each.hint in (int, float):
        _check(each, value)
    return _converted(each.hint, value)


def _converted(hint: Any, value: Any) -> Any:
    if hint == BackendChoice:
        return choice_of(value)
    return Path(value) if hint is Path else value


def _check(each: _Parameter, value: float) -> None:
    if each.marks or each.default == 0:
        least = each.marks[0] if each.marks else 0
        if not least <= value < float("inf"):
            raise SettingsError(f"{each.option} is {value}: give {least} or more")
    elif each.hint is int and value < 1:
        raise SettingsError(f"{each.option} is {value}: give a positive integer")
    elif not 0 < value < float("inf"):
        raise SettingsError(f"{each.option} is {value:g}: give a number above 0")
