"""`command:`: a program without a shell, bounded in time and output, and without the secrets of its user."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import threading
from pathlib import Path

import psutil
import pytest

from dsocr_core.backends import command as module
from dsocr_core.backends.backend import open_backend
from dsocr_core.backends.command import CommandBackend, environment_without_secrets
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.specs import parse_backend
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.settings import Settings
from tests.support.paths import SAMPLES

LETTER = SAMPLES / "01-letter.png"
START = "import os, pathlib, sys; image, out = map(pathlib.Path, sys.argv[1:]);"


def template(program: str) -> str:
    """A program in Python that has `image` and `out`."""
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(START + program)} {{image}} {{out}}"


def read(
    program: str, image: Path = LETTER, cancel: threading.Event | None = None, timeout_s: float = 60
) -> OcrResult:
    spec = parse_backend({"spec": f"command:{template(program)}", "name": "mine", "timeout_s": timeout_s})
    return open_backend(spec, Settings()).read(OcrRequest(image), cancel=cancel)


def test_the_text_that_a_program_leaves_is_the_pages_of_several_the_one_with_its_name() -> None:
    result = read("(out / (image.stem + '.md')).write_text('read ' + image.name)")
    assert (result.backend, result.text_raw, result.image_size) == ("mine", "read 01-letter.png", (827, 1169))
    assert (result.token_ids, result.inputs, result.timings) == (None, None, ())
    several = read("[(out / name).write_text(name) for name in ('01-letter.md', 'log.txt')]")
    assert several.text_raw == "01-letter.md"


def test_a_pages_name_is_one_argument_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a b; touch pwned.png", "$(touch pwned).png", "-rf.png", "{out}.png", "'\".png"):
        image = tmp_path / name
        image.write_bytes(LETTER.read_bytes())
        result = read("import json; (out / 'page.md').write_text(json.dumps(sys.argv[1:]))", image)
        assert json.loads(result.text_raw)[0] == str(image)
    assert not list(Path.cwd().glob("pwned*"))


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (r"sys.stderr.write('a\n\x1b[31mno model\n\n'); sys.exit(3)", r"exit code 3: \\x1b\[31mno model$"),
        ("pass", r"left no text to take \(its folder: has no text of a page"),
        ("(out / 'page.md').write_text('x' * 1001)", "was stopped: it left more than 1,000 bytes"),
        ("[(out / str(number)).touch() for number in range(4)]", "was stopped: it left more than 3 files"),
    ],
)
def test_a_program_that_fails_or_leaves_nothing_or_too_much_is_one_line(
    program: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OUTPUT_BYTES", 1000)
    monkeypatch.setattr(module, "OUTPUT_FILES", 3)
    with pytest.raises(DsocrError, match=rf"^01-letter\.png: [^\n]*{says}"):
        read(program)


WAITS = (
    "import signal, subprocess;"
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']);"
    "pathlib.Path(os.environ['PIDS']).write_text(f'{os.getpid()} {child.pid}'); signal.pause()"
)
"""Writes its number and that of a process it has started, and waits for ever."""


def test_cancelled_or_out_of_time_it_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cancel(threading.Event):
        def is_set(self) -> bool:  # as soon as both are there
            return pids.exists() and bool(pids.read_text())

    pids = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(pids))
    with pytest.raises(DsocrError, match="was stopped after 2 s; give timeout_s a larger number"):
        read(WAITS, timeout_s=2)
    assert_gone(pids)
    pids.unlink()
    with pytest.raises(Cancelled):
        read(WAITS, cancel=Cancel())
    assert_gone(pids)


def assert_gone(pids: Path) -> None:
    """None of the processes runs; what init has not yet collected does not run either."""
    for number in map(int, pids.read_text().split()):
        with contextlib.suppress(psutil.NoSuchProcess):
            while psutil.Process(number).status() != psutil.STATUS_ZOMBIE:  # else pytest's own limit ends it
                os.sched_yield()


def test_keys_and_passwords_are_not_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "PATH": os.environ["PATH"], "HOME": "/home/me", "CUDA_VISIBLE_DEVICES": "0", "OPENAI_API_KEY": "s",
        "HF_TOKEN": "s", "AWS_SECRET_ACCESS_KEY": "s", "DB_PASSWORD": "s", "SSH_AUTH_SOCK": "s", "MINE": "s",
        "DATABASE_URL": "postgres://me:s@host/db", "PROXY": "http://host:80", "MONKEY_ISLAND": "1",
    }  # fmt: skip
    server = {"spec": "endpoint:http://127.0.0.1:1/v1", "key_variable": "MINE"}
    left = environment_without_secrets(given, Settings(backends={"server": server}))
    assert "s" not in left.values()
    assert set(left) == {"PATH", "HOME", "CUDA_VISIBLE_DEVICES", "PROXY"}
    monkeypatch.setenv("HF_TOKEN", "very-secret")
    result = read("(out / 'page.md').write_text(' '.join(os.environ.values()) or '-')")
    assert "very-secret" not in result.text_raw


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("my-ocr {image}", "has no {out}; give it like: my-ocr --image {image} --out {out}"),
        ("{image} --out {out}", "has no {image}"),
        ("my-ocr 'x {image} {out}", "cannot be split"),
        ("no-such-program {image} {out}", "there is no program 'no-such-program'"),
    ],
)
def test_a_template_that_cannot_be_is_refused_before_the_first_page(text: str, reason: str) -> None:
    with pytest.raises(DsocrError, match=re.escape(reason)):
        CommandBackend(parse_backend(f"command:{text}"), Settings()).check()
