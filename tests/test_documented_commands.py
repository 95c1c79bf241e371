"""Commands that documents show are ones that the parsers take."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import parse
from tests.support.paths import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
INLINE = re.compile(r"`((?:dsocr|python -m (?:dsocr_core|tests[.\w]*)|make) [^`]+)`")
OURS = re.compile(r"^(?:\S+=\S* )*(?:\S*dsocr|python3? -m (?:dsocr_core|(tests\.perf\.\w+))) (.*)$")
CUT = re.compile(r"\s(?:\||&&|;|>|<|#).*$")
PLACEHOLDERS = {"N": "2", "M": "3", "...": "", "COMMAND": ""}
TARGETS = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def commands(file: Path) -> Iterator[str]:
    """Lines of blocks, continued ones joined, and code in sentences."""
    fenced = False
    for line in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        fenced ^= line.startswith("```")
        block = fenced or line.startswith("    ")
        yield from [line.strip().removeprefix("$ ")] if block else INLINE.findall(line)


def problem(line: str, config: Path) -> str:
    """What is wrong with a command, or a part of one; nothing where it is none of ours."""
    if line.startswith("make ") and line.split()[1] not in TARGETS:
        return "no target of the Makefile"
    if (found := OURS.match(CUT.sub("", line))) is None:
        return ""
    module, given = found.groups()
    take = importlib.import_module(module).build_parser().parse_args if module else parse
    said = io.StringIO()
    with contextlib.suppress(ValueError):  # prose with an apostrophe
        words = [
            PLACEHOLDERS.get(word, word) for word in shlex.split(re.sub(r"\[(--[^\]]*)\]", r"\1", given))
        ]
        words = [str(config) if before == "--config" else word
                 for before, word in zip(["", *words], words, strict=False) if word]  # fmt: skip
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                take(words)
        except (SystemExit, DsocrError) as error:
            refused = str(error) if isinstance(error, DsocrError) else said.getvalue()
            return "" if re.search("required|not provided", refused) else refused
    return ""


def test_every_documented_command_is_one_that_the_parsers_take(tmp_path: Path) -> None:
    (config := tmp_path / "settings.yaml").write_text("preset: small\n")
    shown = [(file.name, line) for file in DOCUMENTS for line in commands(file)]
    wrong = [(*each, words) for each in shown if (words := problem(each[1], config))]
    assert not wrong and sum("dsocr " in line for _, line in shown) > 40, wrong
