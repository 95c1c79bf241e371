"""The Compare page driven without a browser, on made-up results."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dsocr_core.settings import Settings
from dsocr_core.vendor.remote_code import remote_code
from pages.widgets.compare import document
from pages.widgets.shared import resources, sources
from pages.widgets.shared.messages import plain
from pages.widgets.shared.runner import AppSession, Runner
from tests.support.fabricated_results import FabricatedPipeline, make_samples
from tests.support.opened_page import address_of, checked, errors, mounted, opened, strips


class Stage:
    """A page with made-up samples and backends."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.samples = folder / "samples"
        self.pipeline = FabricatedPipeline(
            make_samples(self.samples), differ=lambda name: name.startswith("letter")
        )
        self.runner = Runner(lambda settings: self.pipeline)
        monkeypatch.setattr(resources, "runner", lambda: self.runner)
        monkeypatch.setattr(sources, "SAMPLES", self.samples)
        monkeypatch.setattr(sources, "UPLOADS", folder / "uploads")
        monkeypatch.setattr(sources, "RENDERED", folder / "rendered")
        monkeypatch.setenv("DSOCR_ROOTS", str(folder))

    def record(self, name: str, preset: str = "small") -> None:
        request = Settings(preset=preset).request(self.samples / name, name)
        self.pipeline.record(request)

    def open(self, **address: str) -> AppTest:
        return self.settled(opened("dashboard", **address))

    def settled(self, test: AppTest) -> AppTest:
        job = test.session_state.get("job")
        if job is not None:
            job.join(60)
            test.run()  # a browser polls; here one rerun after the end
        return checked(test)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    st.cache_data.clear()
    return Stage(tmp_path, monkeypatch)


def strip(test: AppTest) -> str:
    return strips(test)[0]


def viewer(test: AppTest) -> dict:
    return mounted(test, "viewer")


def test_a_run_that_is_not_recorded_says_so_beside_its_result(stage: Stage, tmp_path: Path) -> None:
    place = tmp_path / "history"
    place.write_bytes(b"")
    stage.pipeline.keep = AppSession(Settings(history=str(place))).keep  # the product's own recording
    test = stage.open(page="letter_tall")
    stage.settled(test.button(key="run").click().run())
    assert "DIFFERS" in strip(test) and "recorded" not in strip(test)
    states = {pair["state"] for pair in viewer(test)["pairs"]}  # the result is there
    assert {"matched", "relabelled", "only_a", "only_b"} <= states
    *_, drawn = test.main.children.values()
    assert drawn.children[1].type == "bidi_component"  # the viewer, where it was without the error
    (said,) = errors(test)
    assert said.startswith("This run was not recorded: ") and "history" in said and "\n" not in said


def test_one_side_alone_is_no_evidence(stage: Stage) -> None:
    test = stage.open(page="slide_wide")
    test.button_group(key="sides").set_value(["a"]).run()
    assert test.button(key="run").label == "Run A"
    stage.settled(test.button(key="run").click().run())
    assert "NOT COMPARED" in strip(test) and "B has not run" in strip(test)
    data = viewer(test)
    assert {pair["state"] for pair in data["pairs"]} == {"single"}
    assert data["sides"]["b"]["summary"] == "not run"
    assert data["sides"]["b"]["action"] == "b"


def test_while_all_pages_are_read_none_is_called_not_run(stage: Stage) -> None:
    test = stage.open(page="slide_wide")
    assert "NOT RUN" in strip(test)
    test.session_state[document.JOB] = SimpleNamespace(running=True, about="")
    assert "READING" in strip(checked(test.run())) and "NOT RUN" not in strip(test)


def test_a_bad_file_is_one_line_where_it_was_chosen_and_the_app_lives_on(stage: Stage) -> None:
    file = stage.samples.parent / "broken.pdf"
    file.write_bytes(b"%PDF-1.4 nothing")
    test = stage.open(source="File", path=str(file))
    (said,) = errors(test)
    assert "broken.pdf" in said and "not a readable PDF" in said and test.button(key="run").disabled
    test.file_uploader(key="upload").set_value(("x.png", b"no", "image/png")).run()
    (said,) = errors(test)
    assert said.startswith("x.png: ") and "not an image" in said and len(test.sidebar.error) == 1
    test.text_input(key="compare path").set_value(str(stage.samples / "invoice.png")).run()
    assert not errors(test)
    assert viewer(test)["image"]["id"].startswith("invoice.png:")


def test_another_upload_keeps_no_page_and_no_box_of_the_one_before(stage: Stage) -> None:
    test = stage.open(page="letter_tall", box="2")
    test.segmented_control(key="compare source").set_value("File").run()
    for name in ("invoice.png", "letter_tall.png"):  # the second time the same name
        content = (stage.samples / name).read_bytes()
        test.file_uploader(key="upload").set_value(("page.png", content, "image/png")).run()
        assert viewer(test)["image"]["id"].startswith("page.png:")
        assert not {"page", "box"} & address_of(test).keys()
        again = stage.open(**{name: values[0] for name, values in address_of(test).items()})  # D7: a reload
        assert viewer(again)["image"] == viewer(test)["image"]
        test.session_state["compare values"]["box"] = "2"


def test_an_upload_opens_again_though_it_lies_outside_of_the_folders_that_may_be_typed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(resources, "allowed_roots", lambda: (tmp_path / "elsewhere",))
    stored = sources.store_upload("page.png", (stage.samples / "invoice.png").read_bytes())
    assert viewer(stage.open(source="File", path=str(stored)))["image"]["id"].startswith("page.png:")


def test_a_foreign_checkpoint_needs_a_confirmed_switch(stage: Stage) -> None:
    foreign = stage.samples.parent / "foreign"
    foreign.mkdir()
    (foreign / "b.py").touch()
    test = stage.open()
    test.text_input(key="checkpoint").set_value(str(foreign)).run()
    switch = next(toggle for toggle in test.toggle if plain(str(foreign)) in toggle.label)
    assert not switch.value
    switch.set_value(True).run()
    assert test.session_state["trusted"] == set()
    confirm = next(button for button in test.button if button.label == "Run its code")
    confirm.click().run()
    allowed = {remote_code(foreign).permission}
    assert test.session_state["trusted"] == allowed
    (foreign / "b.py").write_text("one = 1\n", encoding="utf-8")
    test.run()
    assert ["Its code has changed" in shown.value for shown in test.warning] == [True]
    assert [line.split()[-1] for line in test.code[-1].value.splitlines()] == ["b.py"]
    next(button for button in test.button if button.label == "Run its code").click().run()
    assert test.session_state["trusted"] == {*allowed, remote_code(foreign).permission}
    next(toggle for toggle in test.toggle if plain(str(foreign)) in toggle.label).set_value(False).run()
    assert test.session_state["trusted"] == set()


def test_a_settings_file_sets_what_the_sidebar_starts_from(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stage.samples.parent / "settings.yaml"
    file.write_text("preset: tiny\ninfer:\n  max_new_tokens: inf\n")
    monkeypatch.setenv("DSOCR_CONFIG", str(file))
    test = stage.open(page="receipt_small")
    assert not errors(test)
    assert test.selectbox(key="compare preset").value == "tiny"
    assert test.text_input(key="tokens").value == "inf"
    file.write_text("presset: tiny\n")
    (said,) = errors(stage.open())
    assert "settings.yaml" in said and "\n" not in said


def test_a_text_to_locate_is_needed_and_brings_no_tokens(stage: Stage) -> None:
    test = stage.open(prompt="locate")
    assert test.button(key="run").disabled
    test.text_input(key="locate").set_value("total <image>").run()
    stage.settled(test.button(key="run").click().run())
    prompt = test.session_state["job"].request.prompt
    assert prompt.count("<image>") == 1 and "total" in prompt


@pytest.mark.parametrize(
    ("field", "text", "says"),
    [("tokens", "many", "infer.max_new_tokens"), ("checkpoint", "/usr/lib", "outside the folders")],
)
def test_a_setting_that_cannot_be_is_said_in_place_of_a_verdict_with_the_way_out(
    stage: Stage, field: str, text: str, says: str
) -> None:
    test = stage.open()
    test.text_input(key=field).set_value(text).run()
    assert not errors(test) and test.button(key="run").disabled
    assert "NOT READ" in strip(test) and says in strip(test)
    if field == "checkpoint":
        test.button(key="usual checkpoint").click().run()
        assert not test.button(key="run").disabled and "NOT RUN" in strip(test)


@pytest.mark.parametrize("tab", ["Differences", "Cause", "Details"])
def test_a_link_opens_its_view_and_every_tab_draws_also_of_one_side(stage: Stage, tab: str) -> None:
    stage.record("letter_tall.png", "tiny")
    test = stage.open(page="letter_tall", preset="tiny", mode="2-up", box="3", tab=tab)
    data = viewer(test)
    assert (data["mode"], data["selected"]) == ("2-up", 2) and not errors(test)
    if tab == "Differences":
        test.session_state["tables"] = True
        checked(test.run())
        assert test.dataframe[0].value["status"].tolist()[1] == "relabelled"
    request = Settings(preset="small").request(stage.samples / "slide_wide.png", "slide_wide.png")
    stage.pipeline.record(request, ["a"])
    assert not errors(stage.open(page="slide_wide", tab=tab))
