"""A child process, whatever it does."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from dsocr_core.base.child import Child, ChildGone


@contextmanager
def child(code: str, talks: bool = True) -> Iterator[Child]:
    with closing(Child([sys.executable, "-c", code], os.environ, talks=talks)) as started:
        yield started


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL; the system kills so when memory runs out"),
        ("import os; os.abort()", "ended by SIGABRT"),
    ],
)
def test_how_it_ended_is_said_to_those_who_wait_and_who_speak(code: str, how: str) -> None:
    with child(code) as gone:
        for _ in range(2):
            with pytest.raises(ChildGone) as end:
                gone.receive(60)
            assert str(end.value) == how
        with pytest.raises(ChildGone, match=how.partition(";")[0]):
            gone.send(b"x" * 2**20)


def test_closing_ends_what_it_started() -> None:
    starts = (
        "import subprocess, sys\n"
        "one = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(one.pid, flush=True); one.wait()"
    )
    with child(starts) as parent:
        line = parent.receive(60)
        assert line is not None
        descriptor = os.pidfd_open(int(line))
    assert select.select([descriptor], [], [], 60)[0]
    os.close(descriptor)
