"""Sessions without browsers: pages are drawn, failures counted; foreign names and origins are turned away."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from socket import create_connection

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.perf import sessions
from tests.support.browser_driver import ROOT, serve

SCRIPT = """
import sys
import streamlit as st
sys.path.insert(0, {root!r})
from pages.widgets import streamlit_mends
streamlit_mends.MOST_CLOSED, streamlit_mends.IDLE_S = 2, 0.2
streamlit_mends.bound_closed_sessions()
if "fail" in st.query_params:
    raise ValueError("planted")
st.write("a page")
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A small app under the project's own configuration: (address, process id)."""
    folder = tmp_path_factory.mktemp("app")
    script: Path = folder / "app.py"
    script.write_text(SCRIPT.format(root=str(ROOT)), encoding="utf-8")
    with serve(script, folder / "log") as server:
        yield server.url, server.pid


def test_closed_sessions_leave_no_descriptors(served: tuple[str, int]) -> None:
    """Three a session: more than were stored, and those that are stored."""
    url, pid = served
    with sessions._session(url) as session:
        sessions.rerun(session, "")
    most = None
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(sessions._session(url)) for _ in range(5)]
            for session in opened:
                sessions.rerun(session, "")
            held = sessions.held(pid)["descriptors"]
        # `held` may count sessions that are still stored: the second round goes back to the first one.
        most = held - 5 * 3 if most is None else most
        until = time.monotonic() + 60
        while sessions.held(pid)["descriptors"] > most and time.monotonic() < until:
            time.sleep(0.05)
        assert sessions.held(pid)["descriptors"] <= most


@pytest.mark.parametrize(
    ("host", "origin", "taken"),
    [
        ("127.0.0.1", "http://127.0.0.1:{port}", True),
        ("127.0.0.1", "http://elsewhere.example", False),
        ("elsewhere.example", "http://elsewhere.example:{port}", False),
    ],
)
def test_only_the_apps_own_names_open_a_session(
    served: tuple[str, int], host: str, origin: str, taken: bool
) -> None:
    """The last is DNS rebinding: a page of another name, which leads to this machine."""
    port = int(served[0].rpartition(":")[2])
    address = f"ws://{host}:{port}/_stcore/stream"
    socket = create_connection(("127.0.0.1", port))
    try:
        with connect(address, sock=socket, origin=Origin(origin.format(port=port))) as session:
            session.recv(timeout=0.5)
        opened = True
    except TimeoutError:  # nothing is said before something is asked
        opened = True
    except (ConnectionClosed, InvalidStatus):
        opened = False
    assert opened == taken
