"""Commands that documents show are ones that the parsers take."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import parse
from tests.support.paths import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
INLINE = re.compile(r"`((?:dsocr|python -m (?:dsocr_core|tests[.\w]*)|make) [^`]+)`")
OURS = re.compile(r"^(?:.* )??(?:(?:\S*dsocr|python3? -m dsocr_core)|python3? -m (tests\.perf\.\w+)) (.*)$")
CUT = re.compile(r"\s(?:\||&&|;|>|<|#).*$")
PLACEHOLDERS = {"N": "2", "M": "3", "...": ""}


def commands(file: Path) -> Iterator[tuple[str, bool]]:
    """Lines of blocks, continued ones joined, and code in sentences; True for a whole command."""
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip().removeprefix("$ "), True
        else:
            yield from ((code, False) for code in INLINE.findall(line))


def refusal(take: Callable[[list[str]], object], words: list[str], whole: bool) -> str:
    """The parser's own words. In a sentence nothing has to be there."""
    said, text = io.StringIO(), ""
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            take(words)
    except SystemExit as stop:
        text = said.getvalue() if stop.code else ""
    except DsocrError as error:
        text = str(error)
    return "" if not whole and "required" in text else text


def problem(line: str, whole: bool, config: Path) -> str:
    """What is wrong with a command; nothing where it is none of ours."""
    if line.startswith("make "):
        targets = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        target = line.split()[1]
        return "" if target in targets or "=" in target else f"the Makefile has no target {target}"
    found = OURS.match(CUT.sub("", line))
    if found is None or not (line.startswith(("dsocr", "python")) or " -m " in line):
        return ""
    module, given = found.groups()
    try:
        words = [
            PLACEHOLDERS.get(word, word) for word in shlex.split(re.sub(r"\[(--[^\]]*)\]", r"\1", given))
        ]
    except ValueError:
        return ""  # prose with an apostrophe
    words = [str(config) if before == "--config" else word
             for before, word in zip(["", *words], words, strict=False) if word]  # fmt: skip
    if module:
        return refusal(importlib.import_module(module).build_parser().parse_args, words, whole)
    if not whole and len(words) < 2 and words[:1] in ([], ["COMMAND"], ["flops"], ["history"]):
        return ""
    return refusal(parse, words, whole)


def test_every_documented_command_is_one_that_the_parsers_take(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("preset: small\n")
    shown = [(file.name, line, whole) for file in DOCUMENTS for line, whole in commands(file)]
    wrong = [
        f"{name}: {line}\n    {words}"
        for name, line, whole in shown
        if (words := problem(line, whole, config))
    ]
    assert not wrong, "\n".join(wrong)
    assert sum("dsocr " in line for _, line, whole in shown if whole) > 20
