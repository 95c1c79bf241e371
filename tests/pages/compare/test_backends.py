"""Which backends the Compare page offers, and that an address chooses among their names only."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dsocr_core.settings import Settings
from pages.widgets.compare import backends
from tests.support.fabricated_results import FabricatedPipeline, make_samples
from tests.support.paths import ROOT

CONFIG = """
history: {history}
backends:
  far: {{spec: "endpoint:http://127.0.0.1:9/v1", flavour: vllm}}
  rounded: {{spec: eager, dtype: bfloat16}}
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that the page made pipelines of."""
    from pages.widgets.shared import resources, sources
    from pages.widgets.shared.runner import Runner

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


def open_page(**address: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "compare.py"), default_timeout=60)
    for name, value in address.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def test_without_backends_in_the_settings_file_there_is_no_choice(
    asked: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DSOCR_CONFIG", raising=False)
    refused = open_page(a="fast", page="letter_tall")
    assert "a fast" in refused.error[0].value
    app = refused.button(key="compare dismiss").click().run()
    assert [box for box in app.selectbox if box.key in ("compare a", "compare b")] == []
    assert {settings.a for settings in asked} == {None}


def test_the_names_of_the_settings_file_are_offered_and_linked(asked: list[Settings], config: None) -> None:
    app = open_page(b="far", page="letter_tall")
    a, b = (app.selectbox(key=f"compare {side}") for side in ("a", "b"))
    assert b.options == ["eager", "fast", "vendor", "far", "rounded"]
    assert (a.value, b.value) == ("eager", "far")
    assert asked[-1].side_names == ("eager", "far")
    a.set_value("rounded").run()
    assert asked[-1].side_names == ("rounded", "far") and asked[-1].of_side("a").dtype == "bfloat16"
    linked = {name: app.query_params[name] for name in ("a", "b")}
    assert {name: "".join(value) for name, value in linked.items()} == {"a": "rounded", "b": "far"}


@pytest.mark.parametrize(
    "named", ["endpoint:http://169.254.169.254/v1", "command:touch /tmp/x", '{"spec": "eager"}', "nobody"]
)
def test_an_address_cannot_name_a_backend_of_its_own(asked: list[Settings], config: None, named: str) -> None:
    app = open_page(a=named, b=named, page="letter_tall")
    assert not app.exception and "left out of the link" in app.error[0].value
    assert {settings.side_names for settings in asked} == {("eager", "vendor")}  # nothing else is opened


def test_the_usual_pair_is_no_choice_so_that_its_results_are_found_again() -> None:
    base = Settings(backends={"x": "eager"})
    assert backends.with_sides(base, "eager", "vendor") == base
    named = backends.with_sides(base, "x", "vendor")
    assert (named.a, named.b, named.side_names) == ("x", "vendor", ("x", "vendor"))
