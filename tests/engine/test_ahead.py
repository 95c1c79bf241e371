"""What a run begins before its first page, and how its threads wait."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli import ahead
from dsocr_core.engine.fast import prepare_device
from dsocr_core.engine.threads import SWITCH_S, quick_switches
from dsocr_core.page import decode_pool


def test_the_process_that_opens_pages_may_be_started_before_the_first(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), "white").save(tmp_path / "page.png")
    decode_pool.start_one(600)
    [*_, started] = decode_pool._workers.idle
    assert decode_pool.open_image(tmp_path / "page.png", 600).image.size == (30, 20)
    assert decode_pool._workers.idle[-1] is started


def test_what_a_device_lacks_is_not_said_ahead_but_by_its_engine() -> None:
    with pytest.raises(DsocrError, match="runs on a CUDA device"):
        prepare_device("cpu")
    ahead._begin_rest({"cpu", "cuda:77"})


def test_switches_are_as_slow_as_before_once_all_are_through() -> None:
    usual, one, other = sys.getswitchinterval(), ExitStack(), ExitStack()
    one.enter_context(quick_switches())
    assert sys.getswitchinterval() == SWITCH_S < usual
    other.enter_context(quick_switches())
    one.close()
    other.close()
    assert sys.getswitchinterval() == usual
