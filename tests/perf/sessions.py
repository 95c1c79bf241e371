"""Use the app as many people at a time, without browsers: errors, waiting, memory, threads, open descriptors.

    python -m tests.perf.sessions --users 20 --minutes 3

Starts the app on a free port of 127.0.0.1. Each user is a WebSocket that asks for pages as a browser does,
waits for the script to end, and now and then leaves and comes back as a new session; every tenth address is
hostile. The server's memory, threads and descriptors are read before, at the end, and after all have left;
its memory also while they are there. It is flat when the last quarter of the time has at most 5% more of it
than the third (medians): the first half is warm-up, in which the stored sessions become as many as they may.
At most 32 closed sessions are stored, for two minutes; their descriptors are closed before. Prints one JSON
document; the exit code is 1 when a script failed or a session was dropped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from tests.support.browser_driver import ROOT, serve

PAGES = ("", "review", "timing", "runs", "flops")
HOSTILE_QUERIES = (
    "run=../../etc/passwd", "page=%00", "a=" + "9" * 5000, "box=-1", "run=" + "x" * 300, "tab=%3Cscript%3E",
    "source=Path&path=~nosuchuser/x", "path=" + "n" * 5000, "runs=%ff%fe", "tokens=" + "9" * 5000, "zoom=nan",
)  # fmt: skip
RERUN_LIMIT_S = 60.0
THINKING_S = (0.2, 1.5)
LEAVES = 0.15
"""Part of the reruns after which a user leaves."""
MESSAGE_BYTES = 256 * 2**20
SAMPLE_S = 1.0
FLAT_GROWTH = 0.05
GONE_S = 10.0
"""How long the server has to let go of closed sessions."""


@dataclass
class Usage:
    """What the users met. Filled by several threads, under `lock`."""

    rerun_s: list[float] = field(default_factory=list)
    sessions: int = 0
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()


def held(pid: int) -> dict[str, int]:
    """What the app's process has."""
    process = psutil.Process(pid)
    with process.oneshot():
        memory, threads, descriptors = process.memory_info(), process.num_threads(), process.num_fds()
    return {"resident_bytes": memory.rss, "threads": threads, "descriptors": descriptors}


@contextmanager
def memory_of(pid: int) -> Iterator[list[int]]:
    """The server's resident bytes, read every second while this is open."""
    found: list[int] = []
    over = threading.Event()

    def read() -> None:
        while not over.wait(SAMPLE_S):
            found.append(held(pid)["resident_bytes"])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    yield found
    over.set()
    reader.join()


def growth(samples: Sequence[int]) -> float | None:
    """Of the last quarter over the third one, as a part (medians); None when there is too little."""
    quarter = len(samples) // 4
    if not quarter:
        return None
    last, third = samples[-quarter:], samples[-2 * quarter : -quarter]
    return statistics.median(last) / statistics.median(third) - 1


def use(url: str, until: float, seed: int, usage: Usage) -> None:
    """One user until the time is over: sessions one after the other."""
    random = Random(seed)
    while time.monotonic() < until:
        try:
            with _session(url) as session:
                with usage.lock:
                    usage.sessions += 1
                while time.monotonic() < until and random.random() >= LEAVES:
                    query = random.choice(HOSTILE_QUERIES) if random.random() < 0.1 else ""
                    page = random.choice(PAGES)
                    began = time.monotonic()
                    errors = rerun(session, page, query)
                    with usage.lock:
                        usage.rerun_s.append(time.monotonic() - began)
                        usage.errors += [f"/{page}?{query[:60]}: {error}" for error in errors]
                    time.sleep(random.uniform(*THINKING_S))
        except (OSError, WebSocketException) as error:  # TimeoutError is an OSError
            with usage.lock:
                usage.errors.append(f"session dropped: {type(error).__name__} {error}"[:200])


def _session(url: str) -> ClientConnection:
    address = url.replace("http", "ws", 1) + "/_stcore/stream"
    return connect(
        address, origin=Origin(url), subprotocols=[Subprotocol("streamlit")], max_size=MESSAGE_BYTES
    )


def rerun(session: ClientConnection, page: str, query: str = "") -> list[str]:
    """Ask for a page and wait for its script to end; the failures that it showed. Raises TimeoutError."""
    ask = BackMsg()
    ask.rerun_script.page_name = page
    ask.rerun_script.query_string = query
    session.send(ask.SerializeToString())
    errors: list[str] = []
    until = time.monotonic() + RERUN_LIMIT_S
    while True:
        said = session.recv(timeout=max(0.0, until - time.monotonic()))
        message = ForwardMsg.FromString(said if isinstance(said, bytes) else said.encode())
        kind = message.WhichOneof("type")
        if kind == "delta":
            errors += _failures(message.delta)
        elif kind == "script_finished" and message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
            if message.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
                errors.append("the script does not compile")
            return errors


def _failures(delta: Any) -> list[str]:
    """An exception on the page, or the sentence for an error nobody foresaw."""
    element = delta.new_element
    kind = element.WhichOneof("type") if delta.HasField("new_element") else None
    if kind == "exception":
        return [f"{element.exception.type}: {element.exception.message}"[:200]]
    if kind == "alert" and "unforeseen" in element.alert.body:
        return [element.alert.body[:200]]
    return []


def measure(url: str, pid: int, users: int, seconds: float) -> dict[str, Any]:
    """Use a running app; JSON-ready figures."""
    usage = Usage()
    with _session(url) as first:
        for page in PAGES:  # imports and first queries are no part of it
            rerun(first, page)
    before = held(pid)
    until = time.monotonic() + seconds
    with memory_of(pid) as memory, ThreadPoolExecutor(users) as pool:
        for user in [pool.submit(use, url, until, number, usage) for number in range(users)]:
            user.result()
    end = held(pid)
    gone = time.monotonic() + GONE_S
    while held(pid)["descriptors"] > before["descriptors"] and time.monotonic() < gone:
        time.sleep(0.2)
    times = sorted(usage.rerun_s)
    grown = growth(memory)
    return {
        "users": users,
        "sessions": usage.sessions,
        "reruns": len(times),
        "errors": len(usage.errors),
        "error_texts": sorted(set(usage.errors))[:20],
        "median_s": round(statistics.median(times), 3) if times else None,
        "p95_s": round(times[int(0.95 * (len(times) - 1))], 3) if times else None,
        "slowest_s": round(times[-1], 3) if times else None,
        "memory_growth": None if grown is None else round(grown, 3),
        "memory_flat": None if grown is None else grown <= FLAT_GROWTH,
        "server": {"before": before, "end": end, "left": held(pid)},
    }


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Use the app with many sessions at a time.")
    parser.add_argument("--users", type=int, default=20, help="sessions at a time")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long they use the app")
    return parser


def main() -> int:
    options = build_parser().parse_args()
    with tempfile.TemporaryDirectory() as folder, serve(ROOT / "app.py", Path(folder) / "log") as server:
        found = measure(server.url, server.pid, options.users, options.minutes * 60)
    print(json.dumps(found))
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
