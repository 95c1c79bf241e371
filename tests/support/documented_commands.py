"""The commands that documents show: found in their code, and parsed by the parsers they are meant for."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import build_parser
from dsocr_core.cli.options import with_dashes
from dsocr_core.cli.sides import joined_sides
from tests.support.paths import ROOT

PLACEHOLDERS = ("NAME", "COMMAND", "PAGE", "RUN", "IMAGE")
NUMBERS = {"N": "2", "M": "3"}
_BEFORE = {"$", "ncu", "nsys", "nice", "time", "torchrun"}
"""Programs that a command of ours may be an argument of."""
_MODULES = ("dsocr_core", "data", "tests.perf.", "tests.hostile.")
_OPERATORS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>"}
_INLINE = re.compile(r"`((?:dsocr|python -m (?:dsocr_core|(?:data|tests)[.\w]*)|make) [^`]+)`")


@dataclass(frozen=True)
class Documented:
    """A command of a document: a whole one of a block, or one that is mentioned in a sentence."""

    file: Path
    line: int
    text: str
    whole: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.text}"


def documents(root: Path = ROOT) -> list[Path]:
    """What is held to the parsers; changelog, decisions and the weights' card name commands of the past."""
    found = [
        root / "README.md",
        root / "CONTRIBUTING.md",
        *root.glob("docs/*.md"),
    ]
    return sorted(path for path in found if path.is_file())


def commands_of(file: Path) -> Iterator[Documented]:
    """Lines of indented and fenced blocks, continued ones joined; and code in sentences."""
    fenced, text, first = False, "", 0
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if not (text or fenced or line.startswith("    ")):
            for code in _INLINE.findall(line):
                yield Documented(file, number, code, whole=False)
            continue
        text, first = (f"{text} {line.strip()}", first) if text else (line.strip(), number)
        if text.endswith("\\"):
            text = text[:-1].rstrip()
        elif _closed(text):
            yield Documented(file, first, text, whole=True)
            text = ""


def _closed(text: str) -> bool:
    """Whether its double quotes are closed; other quotes are apostrophes as often as not."""
    return text.count('"') % 2 == 0


def problem(command: Documented, config: Path) -> str | None:
    """What is wrong with a command, in one line; None where all is well or it is none of ours.

    `config` is a YAML file of settings that stands for whatever one is named.
    """
    text = re.sub(r"\[(--[^\]]*)\]", r"\1", command.text)  # options that may be left out
    try:
        words = _words(text)
    except ValueError:
        return None  # prose with an apostrophe
    program, given = _program(words)
    if program is None:
        return None
    whole = command.whole and "..." not in given
    given = [NUMBERS.get(word, word) for word in given if word != "..."]
    if program == "make":
        return _target_problem(given)
    if program.startswith("dsocr_core."):
        return f"{program} is no command: see dsocr --help"
    if program.startswith("tests."):
        return _refusal(importlib.import_module(program).build_parser(), given, whole)
    if program.startswith("data"):
        file = ROOT / f"{program.replace('.', '/')}.py"
        return None if file.is_file() else f"there is no module {program}"
    return _parser_problem(program, given, whole, config)


def _words(text: str) -> list[str]:
    """Raises ValueError for quotes that do not close."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = list(lexer)
    quoted = [word for word in words if " -m dsocr_core " in word]
    words = quoted[0].partition("=")[2].split() if quoted else words
    end = next((index for index, word in enumerate(words) if word in _OPERATORS), len(words))
    return words[:end]


def _program(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """`dsocr`, `make` or a module, and what it is given."""
    for index, (word, following) in enumerate(zip(words, [*words[1:], ""], strict=False)):
        if word == "-m" and following.startswith(_MODULES):
            return following, list(words[index + 2 :])
        if word == "dsocr" and (index == 0 or words[0] in _BEFORE or "=" in words[0]):
            return word, list(words[index + 1 :])
    return ("make", list(words[1:])) if words and words[0] == "make" else (None, [])


def _target_problem(given: Sequence[str]) -> str | None:
    targets = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    unknown = [word for word in given if "=" not in word and word not in targets]
    return f"the Makefile has no target '{unknown[0]}'" if unknown else None


def _parser_problem(program: str, given: list[str], whole: bool, config: Path) -> str | None:
    """Below the last subcommand its own parser decides."""
    parser = dsocr_parser(*given[:2])
    try:
        given = with_dashes(joined_sides(given))  # as the command itself does first
    except DsocrError as error:
        return str(error) if whole else None
    while below := _below(parser):
        if not given or given[0] in PLACEHOLDERS:
            return "it ends before its subcommand" if whole else None
        if given[0] not in below:
            return f"no subcommand '{given[0]}' (there is {', '.join(below)})"
        parser, given = below[given[0]], given[1:]
    if "--config" in given and any("YAML" in str(action.help) for action in parser._actions):
        given[given.index("--config") + 1] = str(config)
    return _refusal(parser, given, whole)


dsocr_parser = functools.cache(build_parser)


def _below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _refusal(parser: argparse.ArgumentParser, given: Sequence[str], whole: bool) -> str | None:
    """The parser's own words. In a command that is not whole, nothing has to be there."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            parser.parse_args(list(given))
    except SystemExit as stop:
        words = " ".join(said.getvalue().split())
        if stop.code == 0 or (not whole and "required" in words):
            return None
        return words.rpartition("error: ")[2]
    return None
