"""A python for processes of the tests that has the large packages imported before it is started.

Most of the start of a vendor's worker, of a Dask worker and of a reader process is the import of torch,
transformers or Dask, the same for every test. One process of a test run imports them; each start is a fork
of it. What the code under test starts, kills and waits for is a launcher. It hands its files, arguments,
environment and signals to that process, ends as the fork ends, and takes the fork with it.
Tests of the start itself, and of the memory of such a process, take the plain interpreter.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import multiprocessing.spawn
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

CHILDREN = "DSOCR_TESTS_PYTHON"
"""Environment: the interpreter that a fork's own children are started with (default: the plain one)."""

_MOST_FILES = 64
_FREE = 200
"""Above the numbers of the files that a fork is handed."""

# Imports next to nothing itself: it is started for each process. Open are the files it was started with.
LAUNCHER = """
import os, signal, socket, sys, time
path, *arguments = sys.argv[1:]
def given(number):
    try:
        return os.get_inheritable(number)
    except OSError:
        return False
files = [0, 1, 2, *(n for n in map(int, os.listdir("/proc/self/fd")) if n > 2 and given(n))]
server = socket.socket(socket.AF_UNIX)
began = time.monotonic()
while True:
    try:
        server.connect(path)
        break
    except (FileNotFoundError, ConnectionRefusedError):
        if time.monotonic() - began > 120:
            sys.exit(path + ": the warm interpreter does not listen; what it says is in the tests' output")
        time.sleep(0.01)  # another process of the tests is about to listen
fields = [os.getcwd(), " ".join(map(str, files)), str(len(arguments)), *arguments]
message = "\\0".join([*fields, *(f"{k}={v}" for k, v in os.environ.items())]).encode()
socket.send_fds(server, [len(message).to_bytes(4, "big")], files)
server.sendall(message)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: server.send(bytes([number])))
code = int.from_bytes(server.recv(4), "big", signed=True)
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def interpreter(directory: Path) -> Path:
    """The launcher, written to `directory`; it takes `-m MODULE ARGUMENT...` and `-c CODE ARGUMENT...`."""
    launcher = directory / "python"
    code, python = shlex.quote(LAUNCHER), shlex.quote(sys.executable)
    launcher.write_text(f'#!/bin/sh\nexec {python} -I -S -c {code} {shlex.quote(_server())} "$@"\n')
    launcher.chmod(0o755)
    return launcher


@cache
def _server() -> str:
    """Starts the process that is forked, one for all processes of a test run; returns its socket's path."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    parent = os.getppid() if run else os.getpid()
    if run is None:
        folder = Path(tempfile.mkdtemp(prefix="warm-dsocr-"))
    else:
        folder = Path(tempfile.gettempdir()) / f"warm-dsocr-{run}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:  # another one starts it; a launcher waits until it listens
            return str(folder / "socket")
    path = folder / "socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    # Of what libraries read at their import, what the backend gives its workers.
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    python = {"PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}
    subprocess.Popen(
        [sys.executable, "-m", __name__, str(listener.fileno()), str(parent)],
        stdin=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, **offline, **python},
        pass_fds=[listener.fileno()], start_new_session=True,
    )  # fmt: skip
    listener.close()
    return str(path)


def _serve(listener: socket.socket, run: int) -> None:
    """Fork for each launcher; tell it how its fork ended; end the fork of one that is gone.

    `run`: a file that is ready when the tests are over.
    """
    forks: dict[int, tuple[int, socket.socket]] = {}
    """File descriptor of the fork -> its process id and its launcher."""
    poll = select.poll()
    poll.register(run, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == run:
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
            else:  # a launcher hands on a signal, or says nothing more: it was killed
                pid, launcher = next(fork for fork in forks.values() if fork[1].fileno() == ready)
                signals = b""
                with contextlib.suppress(ConnectionError):
                    signals = launcher.recv(1)
                _kill(pid, signal.Signals(signals[0]) if signals else signal.SIGKILL)
                if not signals:
                    poll.unregister(ready)


def _kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _fork(launcher: socket.socket) -> int:
    """A process that does what the launcher asks for, as a child with the launcher's files."""
    size, files, _, _ = socket.recv_fds(launcher, 4, _MOST_FILES)
    message = launcher.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    if pid := os.fork():
        for file in files:
            os.close(file)
        with contextlib.suppress(PermissionError, ProcessLookupError):  # it was quicker, or is gone
            os.setpgid(pid, pid)
        return pid
    try:
        os.setpgid(0, 0)
        directory, numbers, count, *rest = message.decode().split("\0")
        _take(files, [int(number) for number in numbers.split()])
        _run(directory, rest[: int(count)], rest[int(count) :])
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - a fork must not go on as the server
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _take(files: list[int], numbers: list[int]) -> None:
    """Have the launcher's files under its own numbers, and none of the server's."""
    held = [fcntl.fcntl(file, fcntl.F_DUPFD, _FREE) for file in files]
    os.closerange(3, _FREE)
    for file, number in zip(held, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def _run(directory: str, arguments: list[str], environment: list[str]) -> None:
    """`environment`: NAME=VALUE."""
    import transformers.dynamic_module_utils
    import transformers.utils.hub

    os.chdir(directory)
    os.environ.clear()
    os.environ.update(dict(each.split("=", 1) for each in environment))
    sys.executable = os.environ.get(CHILDREN, sys.executable)
    multiprocessing.spawn.set_executable(sys.executable)
    # Read when transformers was imported; every worker has a cache of its own.
    for module in (transformers.utils.hub, transformers.utils, transformers.dynamic_module_utils):
        module.HF_MODULES_CACHE = os.environ.get("HF_MODULES_CACHE", module.HF_MODULES_CACHE)
    if arguments[0] == "-B":
        sys.dont_write_bytecode, arguments = True, arguments[1:]
    flag, what, *others = arguments
    if flag == "-m":
        sys.argv = [what, *others]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif flag == "-c":
        sys.argv = ["-c", *others]
        exec(what, sys.modules["__main__"].__dict__)  # noqa: S102 - what an interpreter is for
    else:
        raise ValueError(f"not known to the warm interpreter: {arguments}")


if __name__ == "__main__":
    bf16_kernels.install()
    import pandas  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401 - `generate` asks it
    from transformers import AutoModel, AutoTokenizer, GenerationMixin  # noqa: F401 - made at their first use
    from transformers.models.llama import modeling_llama  # noqa: F401 - of which the published code is made

    import dsocr_core.backends.on_device
    import dsocr_core.read.session
    import dsocr_core.runs.history

    with contextlib.suppress(ModuleNotFoundError):  # requirements-cluster.txt is not installed
        import distributed.nanny  # noqa: F401

        import dsocr_core.cluster.worker  # noqa: F401

    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        with contextlib.suppress(ProcessLookupError):
            _serve(listener, os.pidfd_open(int(sys.argv[2])))
        shutil.rmtree(Path(listener.getsockname()).parent)
