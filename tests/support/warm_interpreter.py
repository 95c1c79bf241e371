"""A python for the vendor's worker that has torch and transformers imported before it is started.

Most of a worker's start is the import of both, the same for every test. One process of the session imports
them; each start is a fork of it. What a backend starts, kills and waits for is a launcher, which hands its
streams, arguments and environment to that process, ends as the fork ends, and takes the fork with it.
Tests of the start itself take the plain interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path

from tests.support import bf16_kernels
from tests.support.paths import ROOT

STREAMS = 3

# Imports next to nothing itself: it is started for each worker.
LAUNCHER = """
import os, socket, sys
path, *arguments = sys.argv[1:]
server = socket.socket(socket.AF_UNIX)
server.connect(path)
fields = [os.getcwd(), str(len(arguments)), *arguments, *(f"{k}={v}" for k, v in os.environ.items())]
message = "\\0".join(fields).encode()
socket.send_fds(server, [len(message).to_bytes(4, "big")], [0, 1, 2])
server.sendall(message)
code = int.from_bytes(server.recv(4), "big", signed=True)
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def interpreter(directory: Path) -> Path:
    """The launcher, written to `directory`; it takes `-m MODULE ARGUMENT...`."""
    launcher = directory / "python"
    code, python = shlex.quote(LAUNCHER), shlex.quote(sys.executable)
    launcher.write_text(f'#!/bin/sh\nexec {python} -I -S -c {code} {shlex.quote(_server())} "$@"\n')
    launcher.chmod(0o755)
    return launcher


@cache
def _server() -> str:
    """Starts the process that is forked; returns the path of its socket. It ends with this process."""
    path = str(Path(tempfile.mkdtemp(prefix="dsocr-warm-")) / "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    # Of what libraries read at their import, what the backend gives its workers.
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    python = {"PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, str(listener.fileno())],
        stdin=subprocess.PIPE, cwd=ROOT, env={**os.environ, **offline, **python},
        pass_fds=[listener.fileno()],
    )  # fmt: skip
    listener.close()
    atexit.register(server.communicate)  # closes its stdin
    return path


def _serve(listener: socket.socket) -> None:
    """Fork for each launcher; tell it how its fork ended; end the fork of one that is gone."""
    forks: dict[int, tuple[int, socket.socket]] = {}
    """File descriptor of the fork -> its process id and its launcher."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == 0:  # the session ends
                for pid, _launcher in forks.values():
                    _kill(pid)
                return
            if ready == listener.fileno():
                launcher, _ = listener.accept()
                pid = _fork(launcher)
                forks[os.pidfd_open(pid)] = pid, launcher
                poll.register(launcher, select.POLLIN)
                poll.register([*forks][-1], select.POLLIN)
            elif ready in forks:
                pid, launcher = forks.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                poll.unregister(ready)
                os.close(ready)
                with contextlib.suppress(KeyError):  # it was killed first
                    poll.unregister(launcher)
                with contextlib.suppress(OSError):
                    launcher.sendall(code.to_bytes(4, "big", signed=True))
                launcher.close()
                break  # its number may be one of those that were found ready
            else:  # a launcher says nothing more: it was killed
                poll.unregister(ready)
                _kill(next(pid for pid, launcher in forks.values() if launcher.fileno() == ready))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _fork(launcher: socket.socket) -> int:
    """A process that does what the launcher asks for, as a child with the launcher's streams."""
    size, streams, _, _ = socket.recv_fds(launcher, 4, STREAMS)
    message = launcher.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    if pid := os.fork():
        for stream in streams:
            os.close(stream)
        with contextlib.suppress(PermissionError, ProcessLookupError):  # it was quicker, or is gone
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _run(message.decode().split("\0"))
    except SystemExit as stop:
        os._exit(stop.code if isinstance(stop.code, int) else stop.code is not None)
    except BaseException:  # noqa: BLE001 - a fork must not go on as the server
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _run(asked: list[str]) -> None:
    """`asked`: working directory, number of arguments, arguments, NAME=VALUE of the environment."""
    import transformers.dynamic_module_utils
    import transformers.utils.hub

    directory, count, *rest = asked
    arguments, environment = rest[: int(count)], rest[int(count) :]
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(dict(each.split("=", 1) for each in environment))
    # Read when transformers was imported; every worker has a cache of its own.
    for module in (transformers.utils.hub, transformers.utils, transformers.dynamic_module_utils):
        module.HF_MODULES_CACHE = os.environ["HF_MODULES_CACHE"]
    flag, name, *others = arguments
    assert flag == "-m", arguments
    sys.argv = [name, *others]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    bf16_kernels.install()
    from transformers import AutoModel, AutoTokenizer, GenerationMixin  # noqa: F401 - made at their first use
    from transformers.models.llama import modeling_llama  # noqa: F401 - of which the published code is made

    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        _serve(listener)
        shutil.rmtree(Path(listener.getsockname()).parent)
