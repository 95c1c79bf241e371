"""A reader process without an engine: pages are files whose first line says what they do to who reads them.

    text        a result with that text
    abort       the process aborts
    once FILE   the process aborts unless that file is there, which it makes
    hang        nothing ends any more
    parent      the worker that started the process is killed
    memory      takes memory until somebody ends the process
    fail        an error of the page
    env NAME    a result with that variable of the process's environment
    wait FILE   ends when that file is there, with what the page says by then

With STAND_IN_KILLED=N:FILE its first N starts are killed, which FILE counts.

Started by tests in the place of `dsocr_core.cluster.reader_process`.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from pathlib import Path
from typing import Any, BinaryIO

from dsocr_core.cluster import reader_process
from dsocr_core.cluster.reader_process import Message, ReaderProcess, feed
from dsocr_core.models.stages import Stage
from dsocr_core.reading.jsonable import to_jsonable
from tests.cluster.made_up_output import a_result


class StandIn(ReaderProcess):
    def __init__(self, answers: BinaryIO, about: Message) -> None:
        self._answers, self._writing = answers, threading.Lock()

    def load(self) -> None:
        kills, _, file = os.environ.get("STAND_IN_KILLED", "0:").partition(":")
        if int(kills):
            with Path(file).open("a+") as starts:
                starts.write("x")
            if Path(file).stat().st_size <= int(kills):
                os.kill(os.getpid(), signal.SIGKILL)
        self.send({"ready": "stand-in"})

    def read(self, pages: BinaryIO) -> None:
        arrived: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=feed, args=(pages, arrived.put), daemon=True).start()
        while True:
            page = arrived.get()
            self.send({"began": page["id"]})
            self.send({"id": page["id"], **answer(page)})


def answer(page: Message) -> dict[str, Any]:
    path, taken = Path(page["path"]), list[bytearray]()
    word, _, rest = (text := path.read_text()).partition(" ")
    if word == "abort" or (word == "once" and not Path(rest).exists()):
        Path(rest or os.devnull).touch()
        os.abort()
    if word == "parent":
        os.kill(os.getppid(), signal.SIGKILL)
    if word in ("hang", "parent"):
        threading.Event().wait()
    while word == "memory":
        taken.append(bytearray(os.urandom(1)) * 2**24)
    if word == "fail":
        return {"error": f"{page['source']}: planted failure; nothing to do"}
    if word == "env":
        text = os.environ.get(rest, "nothing")
    if word == "wait":
        while not Path(rest.strip()).exists():
            threading.Event().wait(0.02)
        text = path.read_text()
    times = [(Stage.PREFILL, 1.0), (Stage.DECODE, 2.0)]
    return {"result": to_jsonable(a_result(text, times, backend="stand-in", inputs=None))}


if __name__ == "__main__":
    status = reader_process.main(StandIn)
    os._exit(status)
