"""Which backends Compare offers, that an address only chooses among their names, and the commands it shows.

Each command, taken by the parser, reads the same pages under the same settings.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.cli.main import parse
from dsocr_core.cli.options import settings_of
from dsocr_core.reading.parity import Comparison
from dsocr_core.settings import InferSettings, Settings, VendorSettings
from pages.widgets.compare import backends
from pages.widgets.compare.backends import with_dtype_of_b, with_sides
from pages.widgets.shared import resources, sources
from pages.widgets.shared.runner import Runner
from tests.support.fabricated_results import FabricatedPipeline, make_samples
from tests.support.opened_page import opened
from tests.support.results import make_result

FAR = {"spec": "endpoint:http://127.0.0.1:9/v1", "flavour": "vllm", "body": {"top_k": 5, "seed": "1"}}
CONFIG = """
history: {history}
backends:
  far: {{spec: "endpoint:http://127.0.0.1:9/v1", flavour: vllm}}
  rounded: {{spec: eager, dtype: bfloat16}}
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that the page made pipelines of."""
    found: list[Settings] = []
    samples = tmp_path / "samples"
    samples.mkdir()
    pipeline = FabricatedPipeline(make_samples(samples))

    def make(settings: Settings) -> FabricatedPipeline:
        found.append(settings)
        return pipeline

    runner = Runner(make)
    monkeypatch.setattr(sources, "SAMPLES", samples)
    monkeypatch.setattr(resources, "runner", lambda: runner)
    return found


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(CONFIG.format(history=tmp_path / "history"))
    monkeypatch.setenv("DSOCR_CONFIG", str(file))


def test_the_names_of_the_settings_file_are_offered_and_linked(asked: list[Settings], config: None) -> None:
    app = opened("compare", b="far", page="letter_tall")
    a, b = (app.selectbox(key=f"compare {side}") for side in ("a", "b"))
    assert b.options == ["eager", "fast", "vendor", "far", "rounded"]
    assert asked[-1].side_names == ("eager", "far")
    a.set_value("rounded").run()
    assert asked[-1].side_names == ("rounded", "far") and asked[-1].of_side("a").dtype == "bfloat16"
    assert {"".join(app.query_params[name]) for name in ("a", "b")} == {"rounded", "far"}


@pytest.mark.parametrize(
    "named", ["endpoint:http://169.254.169.254/v1", "command:touch /tmp/x", '{"spec": "eager"}', "nobody"]
)
def test_an_address_cannot_name_a_backend_of_its_own(asked: list[Settings], config: None, named: str) -> None:
    app = opened("compare", a=named, b=named, page="letter_tall")
    assert "left out of the link" in app.error[0].value
    assert {settings.side_names for settings in asked} == {("eager", "vendor")}  # nothing else is opened


# --- commands -------------------------------------------------------------------------------------

OF_A_FILE = Settings(
    preset="base", infer=InferSettings(no_repeat_ngram_size=35, max_new_tokens="inf"), pdf_dpi=200,
    rotary="float32", attention="eager", vendor=VendorSettings(trust_remote_code=["/models/a b"]),
)  # fmt: skip


def taken(line: str) -> tuple[str, Settings, list[str]]:
    """The command, its settings with both sides and its images, as the parser has them."""
    words = shlex.split(line)
    assert words[:3] == ["python", "-m", "dsocr_core"]
    _, chosen = parse(words[3:])
    sides = [chosen.backend] if chosen.get("backend") else [chosen.get("a"), *(chosen.get("b") or [])]
    a, b = (*sides, None, None)[:2]
    return words[3], replace(settings_of(chosen), a=a, b=b), list(chosen.images)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(attention="eager"),
        with_dtype_of_b(OF_A_FILE, "float32"),
        with_sides(OF_A_FILE, "fast", "eager"),
        with_sides(Settings(backends={"far": {**FAR, "body": {}}}), "eager", "far"),
        Settings(prompt='-x\'; $(rm) <image>\nsecond "line"'),
    ],
)
def test_compares_command_has_the_same_settings_key(settings: Settings, tmp_path: Path, config: None) -> None:
    settings = replace(settings, history=str(tmp_path / "history"))  # as the settings file has it
    request = settings.request(tmp_path / "-page one.png")
    command, found, images = taken(backends.read_again(request, settings))
    assert (command, images) == ("compare", [str(tmp_path / "-page one.png")])
    assert found.specs == settings.specs
    alike = {"a": None, "b": None, "backends": {}}  # a command has no settings file that names backends
    assert replace(found, **alike) == replace(settings, **alike)


def test_commands_that_find_the_cause_are_offered_where_texts_of_our_engine_differ() -> None:
    a, b = make_result("x", "eager"), make_result("y", "vendor")
    pair = Comparison(a.request, a, b)
    why, trace = map(shlex.split, backends.to_find_out(replace(OF_A_FILE, a="fast"), pair).values())
    assert why[3] == "compare" and why[-3:] == [str(a.request.image), "--why", "1"]
    _, options = parse(trace[3:])
    assert (trace[3], options.a, options.save, options.preset) == ("trace", "fast", True, "base")
    assert not backends.to_find_out(Settings(a=FAR), pair)
