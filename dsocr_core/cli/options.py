"""Options that several subcommands share."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from jsonargparse import ActionConfigFile, ArgumentParser, Namespace

from dsocr_core.backend_specs.parsing import BackendChoice
from dsocr_core.errors import DsocrError
from dsocr_core.outside.untrusted import Refused
from dsocr_core.outside.visible import visible
from dsocr_core.outside.yaml_bounds import check_file
from dsocr_core.records import SIDES
from dsocr_core.settings import Settings, SettingsError

NVTX_ONLY = "mark the stages for a profiler and measure nothing: no events, no clocks, no synchronisation"
_JSON = "print one JSON document and nothing else on stdout"


class SafeParser(ArgumentParser):  # type: ignore[misc]
    """Whose errors cannot steer the terminal: in `dsocr run *` a file's name may be taken for an option."""

    def error(self, message: str, *others: Any, **more: Any) -> None:
        super().error(visible(message), *others, **more)  # leaves


class SettingsFile(ActionConfigFile):  # type: ignore[misc]
    """A settings file, read within bounds: it may come with somebody's report of an error."""

    def __call__(self, parser: Any, cfg: Any, values: str, option_string: str | None = None) -> None:
        """Raises DsocrError."""
        try:
            check_file(Path(values))
        except Refused as refused:
            raise DsocrError(f"--config {visible(values[:200])}: {refused}") from None
        super().__call__(parser, cfg, values, option_string)


def add_subcommand(commands: Any, name: str, description: str) -> ArgumentParser:
    """A new subcommand's parser; the description's first sentence stands in the list of subcommands."""
    parser = SafeParser(description=description, allow_abbrev=False)
    commands.add_subcommand(name, parser, help=description.partition(". ")[0].rstrip("."))
    return parser


def add_settings(parser: ArgumentParser, skip: Collection[str] = ()) -> None:
    """An option for each setting, and a YAML file of them; `cli.sides` adds those that name a backend."""
    parser.add_argument("--config", action=SettingsFile, help="YAML file of settings; options win over it")
    parser.add_class_arguments(Settings, None, skip={*skip, *SIDES})


def settings_of(
    chosen: Namespace,
    skip: Collection[str] = (),
    a: BackendChoice | None = None,
    b: BackendChoice | None = None,
) -> Settings:
    """The settings that `add_settings` made options of, with what reads as A and B. Raises DsocrError."""
    names = [name for name in Settings.__dataclass_fields__ if name not in {*skip, *SIDES}]
    return Settings(**{name: chosen[name] for name in names}, a=a, b=b)


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help=_JSON)


def add_page_options(parser: ArgumentParser, images: str) -> None:
    """What `run` and `compare` take; `images` says what they read."""
    parser.add_argument("images", nargs="+", metavar="IMAGE", help=images)
    parser.add_argument("--pages", type=str, default=None, help="pages of PDF files, like 1-3,7")
    recursive = "read the folders below given ones too; pages are named by their way from there"
    parser.add_argument("--recursive", action="store_true", help=recursive)
    out = "run directory to write (default: data/runs/TIME-COMMAND)"
    parser.add_argument("--out", type=str, default=None, metavar="DIR", help=out)
    parser.add_argument("--save", action="store_true", help="record it as a run of the history")
    add_json(parser)
    add_settings(parser)


def require_positive(chosen: Namespace, *names: str) -> None:
    """Raises SettingsError for one of these options that is less than 1."""
    for name in names:
        if chosen[name] is not None and chosen[name] < 1:
            raise SettingsError(f"{name} is {chosen[name]}: give a positive integer")


def require_above_zero(chosen: Namespace, *names: str) -> None:
    """Raises SettingsError for one of these options that is not a number above 0."""
    for name in names:
        if not 0 < chosen[name] < float("inf"):
            raise SettingsError(f"{name} is {chosen[name]}: give a number above 0")
