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
PLACEHOLDERS = {"N": "2", "M": "3", "...": ""}


def commands(file: Path) -> Iterator[tuple[str, bool]]:
    """Lines of blocks, continued ones joined, and code in sentences; True for a whole command."""
    fenced = False
    for line in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        fenced ^= line.startswith("```")
        if fenced or line.startswith("    "):
            yield line.strip().removeprefix("$ "), True
        else:
            yield from ((code, False) for code in INLINE.findall(line))


def problem(line: str, whole: bool, config: Path) -> str:
    """What is wrong with a command; nothing where it is none of ours.

    In a sentence it may be a part of one.
    """
    if line.startswith("make "):
        targets = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return "" if line.split()[1] in targets else f"the Makefile has no target {line.split()[1]}"
    if (found := OURS.match(CUT.sub("", line))) is None:
        return ""
    module, given = found.groups()
    take = importlib.import_module(module).build_parser().parse_args if module else parse
    said = io.StringIO()
    try:
        words = [
            PLACEHOLDERS.get(word, word) for word in shlex.split(re.sub(r"\[(--[^\]]*)\]", r"\1", given))
        ]
        words = [str(config) if before == "--config" else word
                 for before, word in zip(["", *words], words, strict=False) if word]  # fmt: skip
        if whole or len(words) > 1 or words[0] not in ("COMMAND", "flops", "history"):
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                take(words)
    except (SystemExit, DsocrError) as error:
        refused = str(error) if isinstance(error, DsocrError) else error.code and said.getvalue()
        return refused if refused and (whole or "required" not in refused) else ""
    except ValueError:  # prose with an apostrophe
        pass
    return ""


def test_every_documented_command_is_one_that_the_parsers_take(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("preset: small\n")
    shown = [(file.name, line, whole) for file in DOCUMENTS for line, whole in commands(file)]
    wrong = [(name, line, words) for name, line, whole in shown if (words := problem(line, whole, config))]
    assert not wrong, wrong
    assert sum("dsocr " in line for _, line, whole in shown if whole) > 20
