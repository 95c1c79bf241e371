"""Commands that the app shows: each, taken by the parser, reads the same pages under the same settings."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dsocr_core.cli.main import parse
from dsocr_core.cli.options import settings_of
from dsocr_core.reading.parity import Comparison
from dsocr_core.runs.commands import command_of
from dsocr_core.runs.record import RunRecord
from dsocr_core.settings import InferSettings, Settings, VendorSettings
from pages.widgets.compare import backends
from pages.widgets.compare.backends import with_dtype_of_b, with_sides
from pages.widgets.shared.runner import run_key
from tests.support.results import make_result, of_pages
from tests.support.timed_history import record

FILE = """
backends:
  far: {spec: "endpoint:http://127.0.0.1:9/v1", flavour: vllm}
"""
OF_A_FILE = Settings(
    preset="base", infer=InferSettings(no_repeat_ngram_size=35, max_new_tokens="inf"), pdf_dpi=200,
    rotary="float32", attention="eager", vendor=VendorSettings(trust_remote_code=["/models/a b"]),
)  # fmt: skip
CHOICES = {
    "usual": Settings(attention="eager"),
    "of a settings file": OF_A_FILE,
    "another dtype of B": with_dtype_of_b(OF_A_FILE, "float32"),
    "fast against eager": with_sides(OF_A_FILE, "fast", "eager"),
    "a prompt of one's own": Settings(prompt='-x\'; $(rm) <image>\nsecond "line"'),
}


def taken(line: str) -> tuple[str, Settings, list[str]]:
    """The command, its settings with both sides and its images, as the parser has them."""
    words = shlex.split(line)
    assert words[:3] == ["python", "-m", "dsocr_core"]
    _, chosen = parse(words[3:])
    sides = [chosen.backend] if chosen.get("backend") else [chosen.get("a"), *(chosen.get("b") or [])]
    a, b = (*sides, None, None)[:2]
    return words[3], replace(settings_of(chosen), a=a, b=b), list(chosen.images)


@pytest.mark.parametrize("name", CHOICES)
def test_compares_command_has_the_same_settings_key(name: str, tmp_path: Path) -> None:
    settings = CHOICES[name]
    request = settings.request(tmp_path / "-page one.png")
    command, found, images = taken(backends.read_again(request, settings))
    assert (command, images) == ("compare", [str(tmp_path / "-page one.png")])
    assert run_key(found, found.request(Path(images[0]))) == run_key(settings, request)


def test_a_backend_of_the_settings_file_is_named_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(FILE)
    monkeypatch.setenv("DSOCR_CONFIG", str(file))
    base = Settings(backends={"far": {"spec": "endpoint:http://127.0.0.1:9/v1", "flavour": "vllm"}})
    settings = with_sides(base, "eager", "far")
    request = settings.request(Path("page.png"))
    _, found, _ = taken(backends.read_again(request, settings))
    assert found.specs == settings.specs and run_key(found, request) == run_key(settings, request)


def test_pages_of_one_prompt_are_all_named_and_why_is_offered_where_texts_differ() -> None:
    a, b = (of_pages(make_result(text, name), (640, 480)) for text, name in (("x", "eager"), ("y", "vendor")))
    words = shlex.split(backends.read_again(a.request, Settings()))
    assert words[4:] == [*map(str, a.request.images), "--pages-together"]
    assert backends.find_cause(Settings(), Comparison(a.request, a, b))
    assert not backends.find_cause(Settings(), Comparison(a.request, a, replace(a, backend="vendor")))
    far = Settings(a="endpoint:http://127.0.0.1:9/v1")
    assert not backends.find_cause(far, Comparison(a.request, a, b))


def recorded(settings: Settings, *backends: str) -> RunRecord:
    made = record("a-run", 1.0)
    return replace(made, command=None, source="dsocr", settings=asdict(settings), backends=backends)


FAR = {"spec": "endpoint:http://127.0.0.1:9/v1", "flavour": "vllm", "body": {"top_k": 5, "seed": "1"}}


@pytest.mark.parametrize(
    ("settings", "backends", "command"),
    [
        (Settings(), ("eager", "vendor"), "compare"),
        (replace(OF_A_FILE, a="fast", b="eager"), ("fast", "eager"), "compare"),
        (replace(OF_A_FILE, b=FAR), ("eager", "far"), "compare"),
        (Settings(a=FAR), ("far",), "run"),
        (Settings(engine="fast"), ("fast",), "run"),
        (Settings(a="vendor"), ("vendor",), "run"),
    ],
)
def test_a_runs_command_has_the_same_sides_and_settings(
    settings: Settings, backends: tuple[str, ...], command: str
) -> None:
    line = command_of(recorded(settings, *backends), ["-rf", "$(touch x).png"])
    assert line is not None
    found = taken(line)
    assert (found[0], found[2]) == (command, ["./-rf", "$(touch x).png"])
    assert replace(found[1], a=None, b=None) == replace(settings, a=None, b=None)
    assert found[1].specs == settings.specs


def test_a_named_backend_of_a_run_is_written_out() -> None:
    settings = Settings(b={"spec": "far", "model": "m"}, backends={"far": FAR})
    line = command_of(recorded(settings, "eager", "far"), ["page.png"])
    assert line is not None
    found, wanted = taken(line)[1].spec("b"), Settings(b={**FAR, "model": "m"}).spec("b")
    assert found == wanted
