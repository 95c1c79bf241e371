"""The cache of users without a home, without a name, or with a home that is another user's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.paths import cache_directory, why_unwritable
from dsocr_core.engine.fast import place_kernel_cache
from dsocr_core.runs.history import History
from tests.support.made_up_runs import timing, write_run


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DSOCR_CACHE", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TRITON_HOME"):
        monkeypatch.delenv(name, raising=False)


def as_another_users(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a folder refuse this user, root too."""

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *given: Any, **named: Any) -> Any:
            if isinstance(path, (str, os.PathLike)) and folder in Path(path).parents:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *given, **named)

        return call

    for name in ("stat", "mkdir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))


def test_without_a_home_the_index_is_temporary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_folder_in_the_home_of_another_user_takes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    assert why_unwritable(cache_directory()) is None
    as_another_users(tmp_path / "other", monkeypatch)
    assert "Permission denied" in str(why_unwritable(cache_directory()))
    write_run(tmp_path / "h", "a", [timing("p", "sam", 1.0)])
    with History(tmp_path / "h") as history:
        assert history.run_ids() == ["a"]


def test_kernels_are_compiled_where_this_user_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    (tmp_path / "file").touch()
    for home, cache, place in (
        (tmp_path, tmp_path, None),
        (tmp_path / "file", tmp_path / "cache", tmp_path / "cache" / "triton"),
    ):
        os.environ |= {"TRITON_HOME": str(home), "DSOCR_CACHE": str(cache)}
        place_kernel_cache.cache_clear()
        place_kernel_cache()
        assert os.environ.get("TRITON_CACHE_DIR") == (place and str(place))
    del os.environ["TRITON_CACHE_DIR"]
    os.environ["DSOCR_CACHE"] = str(tmp_path / "file")
    place_kernel_cache.cache_clear()
    folder = place_kernel_cache()
    assert folder is not None and os.environ["TRITON_CACHE_DIR"] == folder.name
