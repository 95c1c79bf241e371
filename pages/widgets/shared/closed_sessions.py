"""Sessions whose browser tab is closed: few are stored for a tab that comes back, and without descriptors.

Streamlit stores 128 of them, and those that drop out of its storage are not shut down: their three
descriptors stay until Python collects them, and their pictures for ever.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time

from streamlit.runtime import exists, get_instance
from streamlit.runtime.session_manager import SessionInfo, SessionStorage

log = logging.getLogger(__name__)

MOST = 32
"""Closed sessions that are stored."""
STORED_S = 120.0
"""So long a tab without a connection finds its session again."""
IDLE_S = 5.0
"""After so long a closed session gives up its event loop; one that comes back gets another."""
_A_COLLECTION = 8
"""Sessions that are shut down between two collections: their objects refer to each other in circles."""


def bound_closed_sessions() -> None:
    """Have this server store closed sessions here."""
    manager = getattr(get_instance(), "_session_mgr", None) if exists() else None
    there = getattr(manager, "_session_storage", None)
    if manager is None or there is None or isinstance(there, ClosedSessions):
        return
    with manager._storage_lock:
        storage = ClosedSessions()
        for info in there.list():
            storage.take_over(info)
        manager._session_storage = storage


class ClosedSessions(SessionStorage):
    """Sessions without a connection, oldest first. Used by the server's thread alone."""

    def __init__(self) -> None:
        self._stored: dict[str, tuple[float, SessionInfo]] = {}
        self._ended = 0

    def get(self, session_id: str) -> SessionInfo | None:
        found = self._stored.get(session_id)
        return found[1] if found else None

    def save(self, session_info: SessionInfo) -> None:
        self.take_over(session_info)
        loop = asyncio.get_running_loop()
        loop.call_later(IDLE_S, self._let_go, session_info)
        loop.call_later(STORED_S + 1.0, self._expire)
        loop.call_soon(self._expire)  # the caller holds a lock of the server

    def take_over(self, session_info: SessionInfo) -> None:
        """Store a session; a full storage is cleared with the next that is saved."""
        self._stored.pop(session_info.session.id, None)
        self._stored[session_info.session.id] = time.monotonic(), session_info

    def delete(self, session_id: str) -> None:
        del self._stored[session_id]

    def list(self) -> list[SessionInfo]:
        return [info for _, info in self._stored.values()]

    def _let_go(self, session_info: SessionInfo) -> None:
        """Close the event loop of a session that is still closed and computes nothing."""
        session = session_info.session
        stored = self._stored.get(session.id)
        if stored is None or stored[1] is not session_info or session._scriptrunner is not None:
            return
        if not session._script_event_loop.is_running():
            session._script_event_loop.close()

    def _expire(self) -> None:
        """End the sessions that were stored too long, and the oldest where there are too many."""
        before = time.monotonic() - STORED_S
        while self._stored:
            session_id, (since, info) = next(iter(self._stored.items()))
            if since >= before and len(self._stored) <= MOST:
                break
            del self._stored[session_id]
            self._end(info)

    def _end(self, info: SessionInfo) -> None:
        try:
            info.session.shutdown()
        except Exception:
            log.exception("a closed session was not shut down")
        self._ended += 1
        if self._ended % _A_COLLECTION == 0:
            gc.collect()
