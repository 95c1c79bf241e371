"""The cache of users without a home, without a name, or with a home that is another user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsocr_core.base.paths import cache_directory
from dsocr_core.engine.fast import place_kernel_cache
from dsocr_core.runs.history import History
from tests.support.made_up_runs import timing, write_run


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DSOCR_CACHE", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TRITON_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("kind", ["home", "cache", "neither"])
def test_kernels_are_compiled_where_this_user_can_write(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ["TRITON_HOME"] = str(tmp_path if kind == "home" else tmp_path / "file")
    os.environ["DSOCR_CACHE"] = str(tmp_path / ("file" if kind == "neither" else "cache"))
    place_kernel_cache.cache_clear()
    folder = place_kernel_cache()
    temporary = folder.name if folder is not None else ""
    expected = {"home": None, "cache": str(tmp_path / "cache" / "triton"), "neither": temporary}
    assert os.environ.get("TRITON_CACHE_DIR") == expected[kind]


def test_where_no_cache_can_be_made_the_index_is_temporary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a user without a home; nor can root write below a file."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")  # as pathlib does

    monkeypatch.setattr(Path, "home", unknown)
    assert str(cache_directory()) == "/nonexistent/.cache/dsocr"
    (tmp_path / "file").touch()
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "file" / "cache"))
    write_run(tmp_path / "h", "a", [timing("p", "sam", 1.0)])
    with History(tmp_path / "h") as history:
        assert history.run_ids() == ["a"]
    assert len(caplog.messages) == 1 and "DSOCR_CACHE" in caplog.messages[0]
