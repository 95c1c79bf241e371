"""What the fast engine says where it cannot run; no kernel is imported for that."""

import pytest

import dsocr_core.engine.fast as fast
from dsocr_core.engine.fast import FastEngineUnavailableError, require_fast_engine


def test_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "find_spec", lambda _: None)
    with pytest.raises(FastEngineUnavailableError, match=r"needs triton.*--engine eager"):
        require_fast_engine("cuda")
    monkeypatch.setattr(fast, "find_spec", lambda _: object())
    with pytest.raises(FastEngineUnavailableError, match="not on cpu"):
        require_fast_engine("cpu")
    require_fast_engine("cuda:1")
