"""A python for processes of the tests that has the large packages imported before it is started.

Most of the start of a vendor's worker, of a Dask worker and of a reader process is the import of torch,
transformers or Dask. A server process imports them once; each start is a fork of it. What the code under
test starts, kills and waits for is a launcher: it hands its files, arguments, environment and signals over,
ends as the fork ends, and takes the fork with it.
Tests of the start itself, and of the memory of such a process, take the plain interpreter.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import marshal
import multiprocessing.spawn
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

from tests.kernels import bf16_kernels
from tests.support.paths import ROOT

CHILDREN = "DSOCR_TESTS_PYTHON"
"""Environment: the interpreter that a fork's own children are started with (default: the plain one)."""
_SERVERS: list[subprocess.Popen[bytes]] = []
"""Each ends when its standard input is closed, with this process."""
_FREE = 200
"""Above the numbers of the files that a fork is handed."""

# Imports next to nothing itself: it is started for each process. It hands over the files that are open.
LAUNCHER = """
import marshal, os, signal, socket, sys
path, *arguments = sys.argv[1:]
files = []
for number in map(int, os.listdir("/proc/self/fd")):
    try:
        files += [number] if number < 3 or os.get_inheritable(number) else []
    except OSError:
        pass
server = socket.socket(socket.AF_UNIX)
server.connect(path)
message = marshal.dumps((os.getcwd(), files, arguments, dict(os.environ)))
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
    """Write the launcher, which takes `-m MODULE ARGUMENT...` and `-c CODE ARGUMENT...`; start its server."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "socket"))
    listener.listen()
    # Of what libraries read at their import, what the backend gives its workers.
    own = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
           "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}  # fmt: skip
    _SERVERS.append(subprocess.Popen(
        [sys.executable, "-m", __name__, str(listener.fileno())], stdin=subprocess.PIPE, cwd=ROOT,
        env=os.environ | own, pass_fds=[listener.fileno()], start_new_session=True,
    ))  # fmt: skip
    listener.close()
    launcher = directory / "python"
    command = [sys.executable, "-I", "-S", "-c", LAUNCHER, directory / "socket"]
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    launcher.chmod(0o755)
    return launcher


def _serve(listener: socket.socket) -> None:
    """Fork for each launcher a process that minds its fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while 0 not in (ready := select.select([0, listener], [], [])[0]) and ready:
        launcher, _ = listener.accept()
        if not os.fork():
            listener.close()
            _mind(launcher)
        launcher.close()


def _mind(launcher: socket.socket) -> None:
    """Fork, hand signals on, say how the fork ended; end it with its launcher."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, files, _, _ = socket.recv_fds(launcher, 4, 64)
    message = launcher.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    pid = os.fork()
    if not pid:
        _become(files, *marshal.loads(message))
    for file in files:
        os.close(file)
    ended = os.pidfd_open(pid)
    while ended not in select.select([launcher, ended], [], [])[0]:
        signals = launcher.recv(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signals[0]) if signals else os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        launcher.sendall(code.to_bytes(4, "big", signed=True))
    os._exit(0)


def _become(
    files: list[int], directory: str, numbers: list[int], arguments: list[str], environment: dict[str, str]
) -> None:
    """Be what the launcher was asked to be, with its files under their numbers."""
    code: object = 1
    try:
        os.setpgid(0, 0)
        held = [fcntl.fcntl(file, fcntl.F_DUPFD, _FREE) for file in files]
        os.closerange(3, _FREE)
        for file, number in zip(held, numbers, strict=True):
            os.dup2(file, number)
            os.close(file)
        _run(directory, arguments, environment)
        code = 0
    except SystemExit as stop:
        code = stop.code
    except BaseException:  # noqa: BLE001 - a fork must not go on as the server
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _run(directory: str, arguments: list[str], environment: dict[str, str]) -> None:
    import transformers.dynamic_module_utils
    import transformers.utils.hub

    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = os.environ.get(CHILDREN, sys.executable)
    multiprocessing.spawn.set_executable(sys.executable)
    # Read when transformers was imported; every worker has a cache of its own.
    for module in (transformers.utils.hub, transformers.utils, transformers.dynamic_module_utils):
        module.HF_MODULES_CACHE = os.environ.get("HF_MODULES_CACHE", module.HF_MODULES_CACHE)
    if arguments[0] == "-B":
        sys.dont_write_bytecode, arguments = True, arguments[1:]
    flag, what, *others = arguments
    sys.argv = [what if flag == "-m" else flag, *others]
    if flag == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, sys.modules["__main__"].__dict__)  # noqa: S102 - what an interpreter is for


if __name__ == "__main__":
    bf16_kernels.install()
    import pandas  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401 - `generate` asks it
    from transformers import AutoModel, AutoTokenizer, GenerationMixin  # noqa: F401 - made at their first use
    from transformers.models.llama import modeling_llama  # noqa: F401 - of which the published code is made

    import dsocr_core.read.session
    import dsocr_core.runs.history

    with contextlib.suppress(ModuleNotFoundError):  # requirements-cluster.txt is not installed
        import distributed.nanny  # noqa: F401

        import dsocr_core.cluster.worker  # noqa: F401

    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
