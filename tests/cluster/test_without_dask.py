"""Dask is optional: everything else runs without it, and one line says what to install."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

WITHOUT = "import sys; sys.modules['dask'] = sys.modules['distributed'] = None; "
MAIN = (
    "from dsocr_core.cli.main import main; status = main(sys.argv[1:]); "
    "print('torch' * ('torch' in sys.modules), end=''); sys.exit(status)"
)


def command(*arguments: str) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT + MAIN, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    return ended.returncode, " ".join((ended.stdout + ended.stderr).split())


def test_a_cluster_without_dask_is_refused_in_one_line_and_status_needs_none(tmp_path: Path) -> None:
    words = "error: a cluster needs distributed: pip install -r requirements-cluster.txt"
    assert command("run", "x.png", "--cluster", "local", "--out", str(tmp_path / "out")) == (2, words)
    assert not (tmp_path / "out").exists()
    (tmp_path / "run.json").write_text('{"cluster": {}}')
    status, shown = command("run", "--status", str(tmp_path), "--json")
    nothing = {"done": 0, "failed": 0, "quarantined": 0, "pages": None, "pages_per_s": None}
    assert (status, json.loads(shown)) == (0, nothing | {"complete": False})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--cluster", "local"], "--cluster needs --out"),
        (["--cluster", "here", "--out", "o"], "--cluster is 'here': give local, or tcp://"),
        (["--cluster", "tcp://h:1", "--workers", "2", "--out", "o"], "--workers is for --cluster local"),
        (["--cluster", "local", "--out", "o", "--redo", "all"], "--redo is 'all': give failed"),
        (["--cluster", "local", "--out", "o", "--save"], "--save is for one process"),
        (["--cluster", "local", "--resume", "o"], "--resume is for one process"),
        (["--cluster", "local", "--out", "o", "--page-limit", "0"], "--page-limit is 0"),
        (["--cluster", "local", "--out", "o", "--pages", "1-3"], "--pages is for one process"),
    ],
)
def test_options_that_do_not_go_together_are_named(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from dsocr_core.cli.main import main

    with contextlib.suppress(SystemExit):  # the parser's own refusal
        assert main(["run", "x.png", *options]) == 2
    captured = capsys.readouterr()
    assert words in " ".join((captured.out + captured.err).split())


def test_each_worker_has_its_gpu_and_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")
    from dsocr_core.base.errors import DsocrError
    from dsocr_core.cluster.local import environments, visible_gpus

    cases: list[tuple[tuple[Any, ...], list[tuple[str | None, str]]]] = [
        ((1, ["0", "1"], 16, "auto"), [("0", "16")]),
        ((None, ["GPU-5f", "GPU-a0"], 4, "cuda"), [("GPU-5f", "2"), ("GPU-a0", "2")]),
        ((3, ["0"], 2, "cpu"), [(None, "1")] * 3), ((None, [], 2, "auto"), [(None, "1")] * 2),
    ]  # fmt: skip
    for given, expected in cases:
        made = environments(*given)
        assert [(env.get("CUDA_VISIBLE_DEVICES"), env["OMP_NUM_THREADS"]) for env in made] == expected
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert visible_gpus() == ["3", "5"]
    with pytest.raises(DsocrError, match="there are 2 GPUs here, and each takes one worker"):
        environments(3, visible_gpus(), 8, "auto")
