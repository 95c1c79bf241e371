"""The Runs page driven without a browser, on a made-up history."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dsocr_core.runs.history import History
from dsocr_core.settings import Settings
from pages.widgets.runs.import_runs import take_uploads
from pages.widgets.runs.run_list import exported
from pages.widgets.shared import resources
from tests.support import listed_runs as made_runs
from tests.support.listed_runs import COMMITS, EAGER, FAST, IMPORTED, PROFILED, STRANGE
from tests.support.made_up_runs import HOSTILE
from tests.support.opened_page import address_of, bodies, checked, opened, words

open_page = partial(opened, "runs")
ALL = [STRANGE, PROFILED, FAST, EAGER, IMPORTED]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made_runs.make(folder).close()
    return folder


def frame(test: AppTest, column: str) -> pd.DataFrame:
    """The table that has a column of that name; empty where none has."""
    found = (each.value for each in test.dataframe if column in each.value)
    return next(found, pd.DataFrame({column: []}))


def listed(test: AppTest) -> list[str]:
    return list(frame(test, "run_id")["run_id"])


def pressed(test: AppTest, key: str) -> AppTest:
    return checked(test.button(key=key).click().run())


# --- the list -------------------------------------------------------------------------------------


def test_the_page_lists_every_run_newest_first(history: History) -> None:
    test = open_page()
    assert listed(test) == ALL
    shown = json.loads(test.dataframe[-1].proto.columns)
    order = test.dataframe[-1].value.columns.tolist()
    upto = [shown[name]["width"] for name in order[: order.index("commit") + 1]]
    assert sum(upto) + 34 <= 677  # of 1,024 pixels the sidebar and the margins leave so much; a box to tick
    table = frame(test, "run_id").set_index("run_id")
    assert table["run"].to_dict() == {
        FAST: "fast vs published code on H200", EAGER: "eager on cpu", PROFILED: "eager on cpu",
        STRANGE: "eager on cpu", IMPORTED: "import of nsys",
    }  # fmt: skip
    assert table.loc[FAST, ["backends", "device", "dtype", "preset", "commit", "note"]].tolist() == [
        "fast, vendor", "NVIDIA H200", "bfloat16", "gundam", "9e3d9e3+", "after the fused kernels"
    ]  # fmt: skip
    assert table.loc[FAST, ["pages", "failed", "new tokens"]].tolist() == [4, 0, 2 * (100 + 101 + 102 + 103)]
    assert table.loc[[EAGER, PROFILED], "marks"].tolist() == ["baseline", "profiled"]
    # What is not known stays so.
    unknown = ["engine", "device", "pages", "commit", "host", "s/page", "tokens/s", "prefill ms"]
    assert table.loc[IMPORTED, unknown].isna().all()
    # Pages take 1,000, 1,002, ... ms, their prefill 100, 101, ... and decode 900, 901, ...
    figures = table.loc[FAST, ["s/page", "prefill ms", "passed"]].tolist()
    assert figures == pytest.approx([1.003, 101.5, 0.75])
    assert table.loc[FAST, "tokens/s"] == pytest.approx(406 / 3.606, rel=0.005)
    assert "5 runs in 3 groups; fastest: eager on cpu, 1.00 pages/s. 2 are profiled or of" in words(test)


def test_speed_stands_against_fidelity_and_its_cost_on_request(history: History) -> None:
    (drawn,) = [body for body in bodies(open_page()) if "dsocr-plane" in body]
    assert "fast vs published code on H200: 0.997 pages/s, 75.0 % of 4 pages" in drawn
    assert drawn.count("<i ") == 2 and "background:transparent" in drawn
    (priced,) = [body for body in bodies(open_page(price="3.6")) if "dsocr-plane" in body]
    assert "fast vs published code on H200: 1.00 cost of 1,000 pages" in priced  # a unit a second


@pytest.mark.parametrize(
    ("link", "runs"),
    [
        ({"backend": ["vendor"]}, {FAST}),
        ({"tag": [HOSTILE[0]]}, {STRANGE}),
        ({"gpu": ["no such GPU"]}, set()),
        ({"view": ["Profiled"]}, {PROFILED, IMPORTED}),
        ({"view": ["Compared"]}, {FAST}),
    ],
)
def test_a_link_with_filters_keeps_them_and_they_are_taken_away(
    history: History, link: dict[str, list[str]], runs: set[str]
) -> None:
    test = open_page(**link)
    assert {*listed(test)} == runs and address_of(test) == link
    if "view" not in link:
        assert runs or "None of the 5 runs pass the filters." in words(test)
        assert listed(pressed(test, "runs clear" if runs else "runs clear all")) == ALL
        assert address_of(test) == {}


def test_what_cannot_be_read_is_named(own: History, tmp_path: Path) -> None:
    broken = tmp_path / "history" / "runs" / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    test = open_page()
    assert test.expander[-1].label == "Left out: 1 that could not be read"
    assert "run.json: not valid JSON" in test.dataframe[-1].value["reason"][0]


def test_runs_that_others_record_delete_and_remove_come_and_go(own: History) -> None:
    test = open_page(runs=[EAGER, FAST, STRANGE])
    there = [*ALL]
    with History(own.storage.location) as other:
        made_runs.add(other, "later", "2026-11-30T08:00:00+00:00", pages=1)
        there.insert(0, "later")
        assert listed(checked(test.run())) == there
        for run_id, leave in ((EAGER, lambda run: other.trash([run])), (FAST, other.storage.remove)):
            leave(run_id)
            there.remove(run_id)
            assert listed(checked(test.run())) == there


def test_groups_have_their_best_and_list_their_runs_alone(history: History) -> None:
    groups = frame(test := open_page(group=["fast vs published code on H200"]), "newest").set_index("group")
    eager = groups.loc["eager on cpu"]
    # Of the three runs one is profiled: neither its best nor its trend count.
    assert eager["runs"] == 3 and eager["trend"] == pytest.approx([1 / 1.002, 1.0], rel=1e-3)
    assert eager["pages/s"] == max(eager["trend"]) and listed(test) == [FAST]
    assert COMMITS[1][:7] in frame(open_page(by="commit"), "newest")["group"].tolist()


# --- chosen runs ----------------------------------------------------------------------------------


def test_two_runs_show_figures_then_the_settings_that_differ_as_used(history: History) -> None:
    test = open_page(runs=[EAGER, FAST])
    found = frame(test, "ratio").set_index("figure")  # A is what was before
    assert found.loc["s/page", ["A", "B", "ratio"]].tolist() == pytest.approx([1.002, 1.003, 1.003 / 1.002])
    assert found.loc["passed, %", "B"] == 75 and pd.isna(found.loc["passed, %", "A"])
    assert "Inconclusive" in words(test) and "A eager on cpu at 1f0c1f0, B fast vs" in words(test)
    assert " at nan" not in words(opened("runs", runs=[EAGER, IMPORTED]))
    table = frame(test, "section").set_index(["section", "name"])
    # Engine and preset as they were used, not once more as they were asked for.
    assert table.loc["settings"].to_dict("index") == {"infer.max_new_tokens": {"A": "8192", "B": "64"}}
    assert table.loc[("versions", "triton")].dropna().to_dict() == {"B": "3.5.0"}
    assert table.loc[("run", "preset")].tolist() == ["small", "gundam"]
    assert ("versions", "python") not in table.index
    differing, every = re.findall(r"(\d+) of (\d+) values differ, as used\.", words(test))[0]
    assert int(differing) == len(table) < int(every) - 5


def test_tags_and_a_note_are_recorded_and_take_nothing_of_what_others_write(own: History) -> None:
    test = open_page(runs=[EAGER], tab="Tags and notes")
    (tags,) = [widget for widget in test.multiselect if str(widget.key).startswith("runs tags")]
    assert tags.value == ["baseline"]
    tags.set_value(["<b>new</b>"])
    test.text_area[0].set_value("line\n<script>'; DROP")
    own.note(EAGER, "theirs")
    own.tag(EAGER, "theirs")
    (save,) = [button for button in test.button if button.label == "Save"]
    checked(save.click().run())
    row = own.runs().set_index("run_id").loc[EAGER]
    assert ({*row["tags"]}, row["note"]) == ({"<b>new</b>", "theirs"}, "line\n<script>'; DROP")


def test_the_trash_is_undone_and_left(own: History) -> None:
    test = pressed(open_page(runs=[EAGER, FAST]), "runs trash")
    assert listed(test) == [STRANGE, PROFILED, IMPORTED] and {*own.trashed()} == {FAST, EAGER}
    assert "2 runs moved to the trash." in words(test)
    test = pressed(test, "runs undo")
    assert listed(test) == ALL and "2 runs restored." in words(test)
    places = [*(test := pressed(test, "runs undo")).main.children]
    test = pressed(test, "runs moved away")
    assert "moved" not in words(test) and [*test.main.children] == places
    test = open_page(view="Trash", runs=[EAGER])
    assert listed(test) == [FAST, EAGER]
    assert listed(pressed(test, "runs restore")) == [FAST] and own.trashed() == [FAST] and len(own) == 5


def test_chosen_runs_open_on_the_other_pages(history: History) -> None:
    ways = {"runs timing", "runs review", "runs flops"}
    assert ways <= {button.key for button in open_page(runs=FAST).button}
    two = open_page(runs=[FAST, STRANGE])
    older, newer = sorted((FAST, STRANGE), key=lambda run: history.record(run).created)
    two.button(key="runs review").click().run()
    assert two.session_state["review request"]["review"] == f"{older}~{newer}"  # A is what was before
    assert not ways & {button.key for button in open_page(runs=[FAST, EAGER, STRANGE]).button}


# --- import, export, examples ---------------------------------------------------------------------


class Sent:
    def __init__(self, name: str, content: bytes) -> None:
        self.name, self._content = name, content

    def getvalue(self) -> bytes:
        return self._content


def test_an_export_imports_elsewhere_through_the_page(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = exported(history, [EAGER, STRANGE])
    with History(tmp_path / "elsewhere") as other:
        monkeypatch.setattr(resources, "history", lambda: other)
        test = pressed(open_page(), "runs import open")
        test.session_state["runs values"]["importing"] = True  # here each click runs the whole page
        test.file_uploader[0].upload("runs.zip", archive).upload("note.txt", b"hello")
        checked(test.run()).session_state["runs values"]["importing"] = True
        test = pressed(test, "runs import")
        test.session_state["runs values"]["importing"] = True
        assert "2 runs imported, 0 duplicates, 1 file skipped" in words(test)
        ((name, reason),) = frame(test, "reason").to_numpy().tolist()
        assert name == "note.txt" and reason.startswith("looks like nothing that the history knows")
        assert listed(pressed(test, "runs show imported")) == [STRANGE, EAGER]
        assert other.record(STRANGE) == history.record(STRANGE)
        again = take_uploads(other, [Sent("runs.zip", archive)])
        assert (again.of("imported"), sorted(again.of("duplicate"))) == ([], [EAGER, STRANGE])


def test_hostile_uploads_stay_in_the_upload_folder(own: History) -> None:
    names = ["../../escape.csv", "/etc/x.csv", "y" * 4000 + ".csv", "a\0b.csv", "📄.csv", "<b>.zip", ""]
    outcome = take_uploads(own, [Sent(name, b"") for name in names])
    reasons = dict(zip(outcome.skipped["file"], outcome.skipped["reason"], strict=True))
    assert outcome.of("imported") == [] and len(outcome.skipped) == len(names), reasons
    assert len(own) == 5


def test_one_switch_hides_the_examples_on_every_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "base_settings", lambda: Settings(history=str(tmp_path / "mine")))
    test = open_page()
    assert "example" in str(frame(test, "run_id")["marks"].tolist())
    test.toggle(key=resources.EXAMPLES).set_value(False).run()
    assert not test.exception and listed(test) == []
