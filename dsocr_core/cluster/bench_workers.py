"""`bench` on every worker of a cluster at the same time: what each machine reaches beside its neighbours."""

from __future__ import annotations

import io
import queue
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from distributed import Client, Event, Future, get_worker, wait

from dsocr_core.cluster.child_environment import child_environment
from dsocr_core.cluster.worker import name_of
from dsocr_core.errors import Cancelled, DsocrError, one_line
from dsocr_core.outside.untrusted import parse_json
from dsocr_core.records import CancelToken
from dsocr_core.settings import PROJECT_ROOT

STRAGGLER_SHARE = 0.9
"""Of the workers' median: one that decodes fewer tokens a second is named. All do the same work at once."""
MOST_OUTPUT = 2**22
"""Bytes of a bench's output that are read."""
_POLL_S = 0.5
_STOP_S = 10.0


@dataclass(frozen=True)
class Worker:
    """What became of a worker's bench: its document, or why there is none."""

    name: str
    document: Mapping[str, Any] | None = None
    error: str | None = None

    def decode(self, engine: str) -> float | None:
        """Median tokens a second of an engine."""
        return self._median(engine, "tokens_per_s")

    def pages(self, engine: str) -> float | None:
        """Median pages a second of an engine."""
        return self._median(engine, "pages_per_s")

    def prefill_ms(self, engine: str) -> float | None:
        stage = self._engine(engine).get("stages", {}).get("prefill")
        return stage["milliseconds"]["median"] if stage else None

    @property
    def engines(self) -> list[str]:
        return [each["name"] for each in self.document["engines"]] if self.document else []

    def _engine(self, engine: str) -> Mapping[str, Any]:
        found: Sequence[Mapping[str, Any]] = self.document["engines"] if self.document else ()
        return next((each for each in found if each["name"] == engine), {})

    def _median(self, engine: str, figure: str) -> float | None:
        spread = self._engine(engine).get(figure)
        return spread["median"] if spread else None


def bench_workers(
    client: Client,
    arguments: Sequence[str],
    timeout_s: float,
    cancel: CancelToken,
    on_worker: Callable[[Worker, int], None] = lambda worker, left: None,
) -> list[Worker]:
    """Run `bench` with those arguments on every worker, by name; `on_worker` is told how many are left.

    Raises Cancelled, DsocrError where the scheduler has no worker or is gone.
    """
    addresses = sorted(client.scheduler_info()["workers"])
    if not addresses:
        raise DsocrError("the scheduler has no worker; start one with: dask worker ADDRESS")
    name = f"dsocr-bench-{secrets.token_hex(4)}"
    stop = Event(name, client)
    ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
    waiting: dict[Future, str] = {}
    for number, address in enumerate(addresses):
        future = client.submit(
            bench_here, list(arguments), str(Path.cwd()), timeout_s, name, key=f"{name}-{number}",
            pure=False, workers=[address], allow_other_workers=False,
        )  # fmt: skip
        waiting[future] = address
        future.add_done_callback(ended.put)
    found: list[Worker] = []
    try:
        while waiting:
            if cancel.is_set():
                raise Cancelled
            if client.status != "running":
                raise DsocrError("the scheduler is gone; start it, then give the same command again")
            with suppress(queue.Empty):
                future = ended.get(timeout=_POLL_S)
                found.append(_outcome(future, waiting.pop(future)))
                on_worker(found[-1], len(waiting))
    finally:
        if waiting and client.status == "running":
            stop.set()
            with suppress(TimeoutError):
                wait(list(waiting), timeout=_STOP_S)
    return sorted(found, key=lambda worker: worker.name)


def _outcome(future: Future, address: str) -> Worker:
    try:
        name, document, error = future.result(timeout=_STOP_S)
    except Exception as failure:  # noqa: BLE001 - a worker that is lost costs itself alone
        return Worker(address, error=one_line(failure, 200))
    return Worker(name, document, error)


def bench_here(
    arguments: Sequence[str], folder: str, timeout_s: float, stop: str
) -> tuple[str, Mapping[str, Any] | None, str | None]:
    """A task: the bench in a process of its own; the worker's name, its document, what went wrong.

    `folder` is where the command was given: paths may be relative to it, where this machine sees it.
    """
    name = name_of(get_worker())
    asked, deadline = Event(stop), time.monotonic() + timeout_s
    there = folder if Path(folder).is_dir() else PROJECT_ROOT
    command = [sys.executable, "-m", "dsocr_core", "bench", *arguments, "--json"]
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        process = subprocess.Popen(
            command,
            cwd=there,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=complained,
            env=child_environment(),
        )
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                if asked.is_set():
                    return name, None, "stopped"
                if time.monotonic() > deadline:
                    return name, None, f"not done within {timeout_s:g} s; give --bench-limit more"
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode == 0:
            return name, parse_json(_tail(said).splitlines()[-1]), None
        words = (_tail(said) + _tail(complained)).decode(errors="replace").strip()
        return name, None, _words(words.rpartition("error: ")[2], process.returncode)


def _words(error: str, code: int) -> str:
    return " ".join(error.split())[:300] or f"its bench ended with exit code {code}"


def _tail(file: IO[bytes]) -> bytes:
    """The end of what a process wrote."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - MOST_OUTPUT))
    return file.read()


def stragglers(workers: Sequence[Worker], engine: str) -> list[str]:
    """Workers that decode less than STRAGGLER_SHARE of the median, by name."""
    speeds = {worker.name: speed for worker in workers if (speed := worker.decode(engine))}
    if len(speeds) < 2:
        return []
    limit = STRAGGLER_SHARE * statistics.median(speeds.values())
    return [name for name, speed in speeds.items() if speed < limit]
