"""One driver an output, in a directory as in an object store; a killed one is followed by the next."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dsocr_core.cluster import lease
from dsocr_core.cluster.lease import OtherDriver, driving
from dsocr_core.cluster.output import Output
from tests.support.paths import ROOT

HOLDER = """
import sys, threading
from dsocr_core.cluster.lease import driving
from dsocr_core.cluster.output import Output
with driving(Output(sys.argv[1]), threading.Event()):
    print("driving", flush=True)
    sys.stdin.read()
"""
NEVER = threading.Event()


def test_a_second_driver_is_refused_by_name_until_the_first_is_killed(tmp_path: Path) -> None:
    command, pipe = [sys.executable, "-c", HOLDER, str(tmp_path / "out")], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT) as first:
        assert first.stdout is not None and first.stdout.readline() == b"driving\n"
        output = Output(str(tmp_path / "out"))
        words = f"process {first.pid}, writes into it; wait for its end"
        with pytest.raises(OtherDriver, match=words), driving(output, NEVER):
            pass
        first.kill()
    for _ in range(2):
        with driving(output, NEVER) as held:
            held.check()


def test_in_a_store_a_driver_without_a_beat_is_replaced_and_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "BEAT_S", 0.02)
    output = Output(f"memory://{tmp_path.name}")
    with driving(output, NEVER), pytest.raises(OtherDriver, match="writes into it"), driving(output, NEVER):
        pass
    assert output.store.read("driver.json") is None
    dead = lease.Lease(output)
    output.store.put("driver.json", dead.content())
    with driving(output, NEVER) as second:
        output.store.put("driver.json", dead.content(7))  # it was only asleep
        assert second.replaced.wait(20)
        with pytest.raises(OtherDriver, match="has gone on with this run"):
            second.check()
    assert output.store.read("driver.json") is not None, "the file is the other's"
