"""The speed gate: its outcomes and exit codes, when it stops, how often it errs, what it leaves behind."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsocr_core.cli.main import main, parse
from dsocr_core.cli.options import chosen_arguments
from dsocr_core.measure import processes
from dsocr_core.measure.gate import Judged, Row, error_per_interval, looks
from dsocr_core.measure.processes import Work
from dsocr_core.models.stages import Stage
from dsocr_core.runs.history import History
from dsocr_core.runs.statistics import ratio_of_runs
from dsocr_core.settings import InferSettings, Settings
from tests.measure.fabricated_benches import (
    BASE_MS,
    Benches,
    install,
    made_clone,
    worktrees,
)


@pytest.fixture(autouse=True)
def no_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr_core.runs.history.SEED_LOCATION", tmp_path / "examples")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_clone(tmp_path_factory.mktemp("made") / "clone")


@pytest.fixture
def clone(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "clone")


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def told(capsys: pytest.CaptureFixture[str], history: Path, *words: str) -> tuple[int, Any]:
    code = main(["gate", f"--history={history}", "--json", *words])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


SLOW_SAM = {"1": {Stage.SAM: 1.1, Stage.PREFILL: 1.06}}


@pytest.mark.parametrize(
    ("benches", "code", "verdict", "slower"),
    [
        (Benches(), 0, "within", []),
        (Benches({"1": {Stage.DECODE: 0.9}}, drift=0.5), 0, "faster", []),
        (Benches(SLOW_SAM), 3, "slower", ["prefill", "sam"]),
        (Benches({"1": {Stage.DECODE: 1.05}}), 3, "slower", ["tokens/s", "pages/s"]),
        (Benches({"1": dict.fromkeys(BASE_MS, 1.1)}, noise=0.3), 4, "inconclusive", []),
        (Benches(SLOW_SAM, contended=range(100)), 4, "inconclusive", []),
    ],
)  # fmt: skip
def test_outcomes_and_exit_codes(
    benches: Benches, code: int, verdict: str, slower: list[str], clone: Path, history: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    install(monkeypatch, clone, benches)
    found, document = told(capsys, history, "--repeats=2")
    assert (found, document["exit_code"], document["verdict"]) == (code, code, verdict)
    assert document["slower"] == slower and bool(document["contended"]) == bool(benches.contended)
    by_metric = {row["metric"]: row for row in document["metrics"]}
    assert list(by_metric) == ["tokens/s", "prefill", "sam", "pages/s"], "short stages are not asked for"
    measured = [row for row in by_metric.values() if row["low"] is not None]
    assert all(row["low"] < row["change"] < row["high"] for row in measured), "of rates, too"
    if verdict == "slower" and "sam" in slower:
        sam = by_metric["sam"]
        assert 0.08 < sam["low"] < 0.1 < sam["high"] < 0.12 and sam["change"] == pytest.approx(0.1, abs=0.01)
        assert (sam["unit"], sam["before"]) == ("ms", pytest.approx(60, rel=0.02))
    with History(history) as opened:  # what was measured is there
        runs = [*document["before"]["runs"], *document["after"]["runs"]]
        assert sorted(runs) == sorted(opened.run_ids())


def test_processes_take_turns_and_stop_when_all_is_known(
    clone: Path, history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benches = install(monkeypatch, clone, Benches())
    told(capsys, history, "--baseline=first", "--repeats=4")
    assert [commit for _, commit in benches.ran] == list("0110"), "half way all was known"
    noisy = install(monkeypatch, clone, Benches(noise=0.2, seed=1))
    told(capsys, history, "--baseline=first", "--commit=HEAD", "--repeats=3")
    assert [commit for _, commit in noisy.ran] == list("011001")
    assert len(worktrees(clone)) == 1


def test_contended_processes_are_left_out_with_those_beside_them(
    clone: Path, history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, clone, Benches(contended=[3]))
    _, document = told(capsys, history, "--repeats=3")
    assert {row["runs_a"] for row in document["metrics"]} == {2} and document["rounds"] == 3
    assert document["contended"] == ["0-3-0", "1-2-0"], "one round, in which the later commit went first"


@pytest.mark.parametrize(("parity", "code"), [(1, 1), (0, 3)])
def test_pages_are_compared_too_and_come_before_speed(
    parity: int, code: int, clone: Path, history: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    benches = install(monkeypatch, clone, Benches(SLOW_SAM, parity=parity))
    found, document = told(capsys, history, "page.png", "--repeats=2", "--preset=small")
    assert (found, document["pages_equal"]) == (code, not parity)
    assert [command for command, _ in benches.ran][:3] == ["run", "run", "compare"]
    assert document["slower"], "speed is told as well"


def test_a_stop_leaves_no_checkout_and_keeps_what_was_measured(
    clone: Path, history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, clone, Benches(cancel_at=3))
    assert main(["gate", "--commit=HEAD", f"--history={history}"]) == 1
    assert "2 benches measured in full" in capsys.readouterr().out
    assert len(worktrees(clone)) == 1 and not list((clone / ".git").glob("worktrees/*"))
    with History(history) as opened:
        assert len(opened) == 3, "and the one that had no partner"


@pytest.mark.parametrize(
    ("words", "benches", "said"),
    [
        (["--baseline=nothing"], Benches(), "'nothing' is no commit of this clone"),
        (["--commit=nothing"], Benches(), "gate: 'nothing' is no commit of this clone"),
        (["--on=nothing"], Benches(), "--on: there is no 'nothing' in this bench; there is tokens/s"),
        (["--fail-above=fast"], Benches(), "--fail-above is 'fast': give a percentage like 3%"),
        (["--repeats=1"], Benches(), "--repeats is 1: give 2 or more"),
        (["page.png"], Benches(parity=2), "gate: compare of the pages"),
        (["--repeats=2"], Benches(earlier="0"), "run.json: recorded by another version"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_one_line(
    words: list[str], benches: Benches, said: str, clone: Path, history: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    install(monkeypatch, clone, benches)
    assert main(["gate", f"--history={history}", *words]) == 2
    assert said in " ".join(capsys.readouterr().out.split())
    assert [command for command, _ in benches.ran].count("bench") <= 4 and len(worktrees(clone)) == 1


def test_a_checkout_runs_its_own_code_whatever_the_environment_puts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here another checkout is PYTHONPATH and the current folder."""
    root = tmp_path / "code"
    (root / "dsocr_core").mkdir(parents=True)
    (root / "dsocr_core" / "__init__.py").touch()
    (root / "dsocr_core" / "__main__.py").write_text(
        "import subprocess, sys; print(__file__, sys.argv[1:], flush=True)\n"
        "sys.argv[1:] and subprocess.run([sys.executable, '-m', 'dsocr_core']); "
        "print('error: full', file=sys.stderr); sys.exit(3)"
    )
    monkeypatch.setenv("PYTHONPATH", str(processes.PROJECT_ROOT))
    monkeypatch.chdir(processes.PROJECT_ROOT)
    code, said, last = processes.Code("code", root).run(["bench"], threading.Event())
    main = f"{root}/dsocr_core/__main__.py"
    assert (code, said.splitlines()) == (3, [f"{main} ['bench']", f"{main} []"]), "a child of it, too"
    assert last == "full"
    code, _, last = processes.Code("code", tmp_path / "gone").run(["bench"], threading.Event())
    assert code == 1 and "in place of the code in" in last


# --- the rule -----------------------------------------------------------------------------------------


def drawn_gate(
    random: np.random.Generator, slower: Sequence[float], between: float, strays: bool = False, most: int = 10
) -> list[str]:
    """Verdicts of a gate by its looks and levels; rounds are 30 % apart, processes and pages `between`."""
    metrics, pages = len(slower), 5
    error = error_per_interval(list(map(str, range(metrics))), most)
    load = random.lognormal(0, 0.3, (most, 1, 1))  # of the machine, in both processes of a round
    sides = []
    for factors in (np.ones(metrics), np.array(slower)):
        # Half of what a process does is to all stages, half to each by itself.
        process = random.lognormal(0, between / 2**0.5, (most, 1, 1)) * random.lognormal(
            0, between / 2**0.5, (most, metrics, 1)
        )
        if strays:
            process = np.where(random.random((most, 1, 1)) < 0.1, 2.0, 1.0) * process
        sides.append(load * process * factors[:, None] * random.lognormal(0, between, (most, metrics, pages)))
    found: list[str] = []
    for number in looks(most):
        found = [
            ratio_of_runs(
                *(side[:number, metric] for side in sides), paired=True, neutral=0.03, error=error
            ).verdict
            for metric in range(metrics)
        ]
        rows = (Row(str(m), *[None] * 5, each, "", 1, 1, 5) for m, each in enumerate(found))  # type: ignore[arg-type]
        if Judged(tuple(rows)).answered:
            break
    return found


@pytest.mark.parametrize(
    ("between", "strays", "planted", "gates", "fewest"),
    [(0.1, False, 1, 400, 0), (0.1, True, 1, 400, 0), (0.01, False, 1, 400, 0),
     (0.005, False, 1.05, 100, 90), (0.005, False, 1.1, 100, 100)],
)  # fmt: skip
def test_one_gate_of_twenty_errs_and_a_slow_stage_is_found(
    between: float, strays: bool, planted: float, gates: int, fewest: int
) -> None:
    assert error_per_interval(["a", "b"], 8) == 0.05 / 4, "two looks at two metrics"
    random = np.random.default_rng(5)
    found = [drawn_gate(random, [planted, *[1.0] * 5], between, strays) for _ in range(gates)]
    assert sum(each[0] == "slower" for each in found) >= fewest
    others = [each[1:] if planted > 1 else each for each in found]
    assert sum("slower" in each or "faster" in each for each in others) <= (20 if planted == 1 else 0)


def test_a_whole_that_is_slower_waits_for_the_stage() -> None:
    def judged(**verdicts: Any) -> Judged:
        rows = [Row(name, 1, 1, 1, 1, 1, each, "", 2, 2, 5) for name, each in verdicts.items()]
        return Judged(tuple(rows))

    assert not judged(prefill="slower", sam="inconclusive").answered
    assert judged(prefill="inconclusive", sam="slower").answered
    assert judged(prefill="slower", sam="within").answered
    assert judged(prefill="slower").answered
    assert judged(prefill="faster", sam="inconclusive").verdict == "inconclusive"
    assert judged(prefill="inconclusive", sam="slower").verdict == "slower"


def test_settings_reach_both_sides_as_options() -> None:
    settings = Settings(
        checkpoint="somewhere", preset="tiny", attention="eager", max_megapixels=7.5,
        infer=InferSettings(max_new_tokens="inf", ngram_whitelist=["<td>", "</td>"], ngram_window=90),
    )  # fmt: skip
    bench, chosen = parse(["bench", *Work(settings, size="64x64", passes=4).words()])
    assert chosen_arguments(bench, chosen)["settings"] == settings
    assert (chosen.size, chosen.repeat, chosen.pages, chosen.engine) == ("64x64", 4, 5, ["eager"])


# --- reports ------------------------------------------------------------------------------------------


def test_reports_say_the_same_to_people_and_programs(
    clone: Path, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    install(monkeypatch, clone, Benches(SLOW_SAM, host="<b>lab</b> | 1", contended=[0]))
    markdown = tmp_path / "gate.md"
    code = main(["gate", f"--history={history}", "--repeats=3", f"--markdown={markdown}"])
    table = capsys.readouterr().out
    assert code == 3 and "2 of 6 benches ran beside other programs" in table
    assert "SLOWER: prefill +" in table

    text = markdown.read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert text.startswith("### Speed gate: SLOWER: prefill") and "<b>" not in text
    assert len(rows) == 6 and {row.replace("\\|", "").count("|") for row in rows} == {7}
    assert any(row.startswith("| sam | 60") and row.endswith("| slower |") for row in rows)
