"""The Runs page driven without a browser, on a made-up history."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Multiselect

from dsocr_core.cli.main import parse
from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.settings import Settings
from pages.widgets.runs.import_runs import take_uploads
from pages.widgets.runs.run_list import exported
from pages.widgets.shared import resources
from tests.support import listed_runs as made_runs
from tests.support.listed_runs import COMMITS, EAGER, FAST, HOSTILE, IMPORTED, PROFILED, STRANGE
from tests.support.opened_page import address_of, checked, figures, opened, words

open_page = partial(opened, "runs")
ALL = [STRANGE, PROFILED, FAST, EAGER, IMPORTED]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made_runs.make(folder).close()
    return folder


@pytest.fixture
def own(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    shutil.copytree(made_once, tmp_path / "history")
    with History(tmp_path / "history") as made:
        monkeypatch.setattr(resources, "history", lambda: made)
        yield made


def frame(test: AppTest, column: str) -> pd.DataFrame:
    """The table that has a column of that name; empty where none has."""
    found = (each.value for each in test.dataframe if column in each.value)
    return next(found, pd.DataFrame({column: []}))


def listed(test: AppTest) -> list[str]:
    return list(frame(test, "run_id")["run_id"])


def tags_of(test: AppTest) -> Multiselect:
    (found,) = [widget for widget in test.multiselect if str(widget.key).startswith("runs tags")]
    return found


def pressed(test: AppTest, key: str) -> AppTest:
    return checked(test.button(key=key).click().run())


# --- the list -------------------------------------------------------------------------------------


def test_the_page_lists_every_run_newest_first(history: History) -> None:
    test = open_page()
    assert listed(test) == ALL
    assert address_of(test) == {}
    table = frame(test, "run_id").set_index("run_id")
    assert table["run"].to_dict() == {
        FAST: "fast vs published code on H200", EAGER: "eager on cpu", PROFILED: "eager on cpu",
        STRANGE: "eager on cpu", IMPORTED: "engine not known on device not known",
    }  # fmt: skip
    assert table.loc[FAST, ["backends", "engine", "device", "dtype", "preset", "commit"]].tolist() == [
        "fast, vendor", "fast", "NVIDIA H200", "bfloat16", "gundam", "9e3d9e3+"
    ]  # fmt: skip
    assert table.loc[FAST, ["pages", "failed", "new tokens"]].tolist() == [4, 0, 2 * (100 + 101 + 102 + 103)]
    assert table.loc[FAST, "same text"] == 0.75
    assert table.loc[FAST, "note"] == "after the fused kernels"
    assert table.loc[[EAGER, PROFILED], "marks"].tolist() == ["baseline", "profiled"]
    assert table.loc[STRANGE, "marks"].startswith("1 failed, ")
    # What is not known stays so.
    unknown = ["engine", "device", "pages", "commit", "host", "s/page", "tokens/s", "prefill ms"]
    assert table.loc[IMPORTED, unknown].isna().all()
    # Pages take 1,000, 1,002, ... ms, their prefill 100, 101, ... and decode 900, 901, ...
    assert table.loc[FAST, ["s/page", "prefill ms"]].tolist() == pytest.approx([1.003, 101.5])  # of four
    assert table.loc[FAST, "tokens/s"] == pytest.approx(406 / 3.606, rel=0.005)
    assert "5 runs in 3 groups; fastest: eager on cpu, 1.00 pages/s. 2 are profiled or of" in words(test)


def test_groups_have_their_best_and_list_their_runs_alone(history: History) -> None:
    test = open_page()
    groups = frame(test, "newest").set_index("group")
    eager = groups.loc["eager on cpu"]
    # Of the three runs one is profiled: neither its best nor its trend count.
    assert eager["runs"] == 3 and eager["trend"] == pytest.approx([1 / 1.002, 1.0], rel=1e-3)
    assert eager["pages/s"] == max(eager["trend"])
    assert groups.loc["fast vs published code on H200", "same text"] == 0.75
    alone = open_page(group=["fast vs published code on H200"])
    assert listed(alone) == [FAST] and address_of(alone) == {"group": ["fast vs published code on H200"]}
    by_commit = frame(open_page(by="commit"), "newest")["group"].tolist()
    assert COMMITS[1][:7] in by_commit and "commit not known" in by_commit


def test_speed_stands_against_fidelity_and_its_cost_on_request(history: History) -> None:
    (drawn,) = figures(open_page())
    own, reference = drawn["data"]
    assert own["x"] == [75.0] and own["y"] == pytest.approx([1 / 1.003], rel=1e-3)
    assert reference["x"] == [100.0] and "of 4 pages" in own["text"][0]
    (priced,) = figures(open_page(price="3.6"))
    assert priced["data"][0]["y"] == pytest.approx([1.003], rel=1e-3)  # a unit a second, for 1,000 pages
    assert "cost of 1,000 pages" in priced["layout"]["yaxis"]["title"]["text"]


def test_chips_list_marked_runs_alone(own: History) -> None:
    assert listed(open_page(view="Profiled")) == [PROFILED, IMPORTED]
    assert listed(open_page(view="Compared")) == [FAST]
    own.trash([EAGER])
    assert listed(open_page(view="Trash")) == [EAGER]


@pytest.mark.parametrize(
    ("link", "runs"),
    [
        ({"backend": ["vendor"]}, {FAST}),
        ({"gpu": ["NVIDIA H200"]}, {FAST}),
        ({"commit": [COMMITS[0]]}, {EAGER, PROFILED}),
        ({"tag": [HOSTILE[0]]}, {STRANGE}),
        ({"gpu": ["no such GPU"]}, set()),
    ],
)
def test_a_link_with_filters_keeps_them_and_they_are_taken_away(
    history: History, link: dict[str, list[str]], runs: set[str]
) -> None:
    test = open_page(**link)
    assert {*listed(test)} == runs and address_of(test) == link
    if not runs:
        assert "None of the 5 runs pass the filters." in words(test)
    assert listed(pressed(test, "runs clear" if runs else "runs clear all")) == ALL
    assert address_of(test) == {}


def test_an_empty_history_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(tmp_path / "none") as empty:
        monkeypatch.setattr(resources, "history", lambda: empty)
        test = open_page()
        assert "No runs yet. Read a page on Compare, or import" in words(test)
        assert "The trash is empty." in words(open_page(view="Trash"))


def test_what_cannot_be_read_is_named(own: History, tmp_path: Path) -> None:
    broken = tmp_path / "history" / "runs" / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    test = open_page()
    assert test.expander[-1].label == "Left out: 1 that could not be read"
    assert "run.json: not valid JSON" in test.dataframe[-1].value["reason"][0]
    # It is not offered as a new run either.
    assert test.button(key="history refresh").label == "Refresh"


# --- chosen runs ----------------------------------------------------------------------------------


def test_two_runs_show_figures_then_the_settings_that_differ_as_used(history: History) -> None:
    test = open_page(runs=[EAGER, FAST])
    found = frame(test, "ratio").set_index("figure")  # A is what was before
    assert found.loc["s/page", ["A", "B", "ratio"]].tolist() == pytest.approx([1.002, 1.003, 1.003 / 1.002])
    assert found.loc["same text, %", "B"] == 75 and pd.isna(found.loc["same text, %", "A"])
    assert "Inconclusive" in words(test) and "A eager on cpu at 1f0c1f0, B fast vs" in words(test)
    table = frame(test, "section").set_index(["section", "name"])
    assert list(table.columns) == ["A", "B"]
    # Engine and preset as they were used, not once more as they were asked for.
    assert table.loc["settings"].to_dict("index") == {"infer.max_new_tokens": {"A": "8192", "B": "64"}}
    assert table.loc[("versions", "torch")].tolist() == ["2.13.0", "2.11.0"]
    assert table.loc[("versions", "triton")].dropna().to_dict() == {"B": "3.5.0"}
    assert table.loc[("run", "engine")].tolist() == ["eager", "fast"]
    assert table.loc[("run", "preset")].tolist() == ["small", "gundam"]
    assert ("versions", "python") not in table.index and ("environment", "platform") not in table.index
    every = len(frame(open_page(runs=[EAGER, FAST], all="on"), "section"))
    assert f"{len(table)} of {every} values differ, as used." in words(test) and every > len(table) + 5


# --- tags and notes -------------------------------------------------------------------------------


def test_tags_and_a_note_are_recorded_and_show(own: History) -> None:
    test = open_page(runs=[EAGER], tab="Tags and notes")
    assert tags_of(test).value == ["baseline"]
    tags_of(test).set_value(["<b>new</b>"])
    test.text_area[0].set_value("line\n<script>'; DROP")
    (save,) = [button for button in test.button if button.label == "Save"]
    checked(save.click().run())
    row = own.runs().set_index("run_id").loc[EAGER]
    assert (list(row["tags"]), row["note"]) == (["<b>new</b>"], "line\n<script>'; DROP")
    assert frame(test, "run_id").set_index("run_id").loc[EAGER, "marks"] == "<b>new</b>"


def test_what_others_write_while_a_form_is_filled_takes_no_words_of_it(own: History) -> None:
    test = open_page(runs=[EAGER], tab="Tags and notes")
    test.text_area[0].set_value("mine")
    own.note(EAGER, "theirs")
    own.tag(EAGER, "theirs")
    (save,) = [button for button in test.button if button.label == "Save"]
    checked(save.click().run())
    row = own.runs().set_index("run_id").loc[EAGER]
    assert ({*row["tags"]}, row["note"]) == ({"baseline", "theirs"}, "mine")
    assert test.text_area[0].value == "mine"


# --- trash ----------------------------------------------------------------------------------------


def test_the_trash_is_undone_and_left(own: History) -> None:
    test = pressed(open_page(runs=[EAGER, FAST]), "runs trash")
    assert listed(test) == [STRANGE, PROFILED, IMPORTED] and {*own.trashed()} == {FAST, EAGER}
    assert "2 runs moved to the trash." in words(test)
    test = pressed(test, "runs undo")
    assert listed(test) == ALL and "2 runs restored." in words(test)
    test = pressed(pressed(test, "runs undo"), "runs moved away")
    assert "moved" not in words(test)
    test = open_page(view="Trash", runs=[EAGER])
    assert listed(test) == [FAST, EAGER]
    assert listed(pressed(test, "runs restore")) == [FAST] and own.trashed() == [FAST] and len(own) == 5


def test_runs_that_another_process_deletes_leave_every_session(own: History) -> None:
    sessions = [open_page(), open_page(runs=[EAGER, FAST, STRANGE])]
    left = [*ALL]
    with History(own.storage.location) as other:
        for how, run_id in (("trashed", EAGER), ("trash emptied", FAST), ("removed", STRANGE)):
            if how == "removed":
                other.storage.remove(run_id)
            else:
                other.trash([run_id])
            if how == "trash emptied":
                other.empty_trash()
            left.remove(run_id)
            assert [listed(checked(test.run())) for test in sessions] == [left] * 2, how


# --- commands -------------------------------------------------------------------------------------


def test_the_command_is_the_recorded_one_or_made_of_the_settings(history: History) -> None:
    test = open_page(runs=[EAGER, FAST, IMPORTED], tab="Reproduce")
    eager, fast = [block.value for block in test.code if block.value.startswith("python")]
    assert eager == "python -m dsocr_core run 'a b.png'"
    # A made command means the run's settings to the program itself.
    assert shlex.split(fast)[:4] == ["python", "-m", "dsocr_core", "compare"]
    _, options = parse(shlex.split(fast)[3:])
    assert options.images == [f"scans/page-{number}.png" for number in range(4)]
    assert (options.engine, options.preset, options.infer.max_new_tokens) == ("fast", "gundam", 64)
    assert options.infer.no_repeat_ngram_size == 20
    assert options.pdf_dpi == Settings().pdf_dpi
    assert "Imported from nsys; no command recorded." in words(test)
    assert f"Made at commit {COMMITS[1]}, with changes that were not committed." in words(test)


# --- import and export ----------------------------------------------------------------------------


class Sent:
    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self._content = content

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
        assert address_of(test) == {"runs": test.session_state["runs values"]["runs"]}
        assert other.record(STRANGE) == history.record(STRANGE)
        again = take_uploads(other, [Sent("runs.zip", archive)], as_folder=False)
        assert (again.imported, sorted(again.here)) == ([], [EAGER, STRANGE])


def test_a_folder_is_uploaded_as_it_lies(own: History) -> None:
    """A run's directory and a file that is none."""
    run = Path(SEED_LOCATION) / "runs" / "20261128-190606-4c84d7d5"
    uploads = [Sent(f"dir/{run.name}/{file.name}", file.read_bytes()) for file in sorted(run.iterdir())]
    outcome = take_uploads(own, [*uploads, Sent("dir/note.txt", b"hello")], as_folder=True)
    assert outcome.imported == [run.name] and outcome.runs["from"].tolist() == [f"dir/{run.name}"]
    assert outcome.skipped["file"].tolist() == ["dir/note.txt"]


def test_hostile_uploads_stay_in_the_upload_folder(own: History, tmp_path: Path) -> None:
    names = ["../../escape.csv", "/etc/x.csv", "y" * 4000 + ".csv", "a\0b.csv", "📄.csv", "<b>.zip", ""]
    for as_folder in (False, True):
        outcome = take_uploads(own, [Sent(name, b"") for name in names], as_folder)
        assert outcome.imported == []
        reasons = dict(zip(outcome.skipped["file"], outcome.skipped["reason"], strict=True))
        assert len(outcome.skipped) == len(names), reasons
        assert reasons["📄.csv"] == "empty" if not as_folder else "📄.csv" in reasons
        assert sum("leads out" in reason for reason in reasons.values()) >= 2
    assert len(own) == 5
    assert take_uploads(own, [Sent("a.csv", b"1"), Sent("a.csv", b"2")], as_folder=False).skipped[
        "file"
    ].tolist() == ["a.csv", "a.csv"]


# --- examples -------------------------------------------------------------------------------------


def test_one_switch_hides_the_examples_on_every_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "base_settings", lambda: Settings(history=str(tmp_path / "mine")))
    test = open_page()
    assert "example" in str(frame(test, "run_id")["marks"].tolist())
    test.toggle(key=resources.EXAMPLES).set_value(False).run()
    assert not test.exception and listed(test) == []
    test.toggle(key=resources.EXAMPLES).set_value(True).run()
    assert len(listed(test)) > 20
