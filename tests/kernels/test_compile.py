"""Kernels compiled side by side: none runs, all are ready after the block, other threads launch as ever."""

import subprocess
import sysconfig
import threading
from contextlib import nullcontext
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
from triton.runtime import _async_compile, build
from triton.runtime.jit import JITFunction

import dsocr_core.kernels.launch  # noqa: F401 - every kernel imports it
from dsocr_core.kernels.compile import compiled_together

CUDA = torch.device("cuda")


class Kernel(JITFunction):  # type: ignore[type-arg, misc]
    """A kernel whose launches are written down; compiling it takes until another is compiled too."""

    def __init__(self, together: threading.Barrier) -> None:
        self.launches: list[dict[str, Any]] = []
        self.loaded, self._together = False, together

    def run(self, *given: Any, **options: Any) -> None:
        self.launches.append({"given": given, **options})
        mode = _async_compile.active_mode.get()
        if mode is not None:
            mode.submit(id(self), self._compile, lambda _: None)

    def _compile(self) -> Any:
        self._together.wait(60)
        return self._Compiled(self)

    class _Compiled:
        def __init__(self, kernel: "Kernel") -> None:
            self._kernel = kernel

        @property
        def run(self) -> None:
            self._kernel.loaded = True


def test_kernels_are_compiled_at_once_and_only_those_of_the_block_are_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    together, ready = threading.Barrier(2), list[tuple[int, int]]()
    pair = Kernel(together), Kernel(together)
    with compiled_together(CUDA, lambda *each: ready.append(each)):
        for kernel in pair:
            kernel[(3,)](7, num_warps=4)
        other = threading.Thread(target=lambda: pair[0][(1,)](1))
        other.start()
        other.join()
    assert all(kernel.loaded for kernel in pair) and len(ready) == 2
    assert pair[0].launches[0] == {"given": (7,), "num_warps": 4, "grid": (3,), "warmup": True}
    with pytest.raises(ValueError, match="shape"), compiled_together(CUDA):
        raise ValueError("shape")
    pair[0][(1,)](1)
    with compiled_together(torch.device("cpu")):
        pair[0][(1,)](1)
    assert [launch["warmup"] for launch in pair[0].launches[1:]] == [False] * 3


def test_of_two_threads_with_a_gpu_each_neither_stays_dry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    kernel, inside, left = Kernel(threading.Barrier(1)), threading.Event(), threading.Event()

    def other() -> None:
        with compiled_together(CUDA):
            inside.set()
            assert left.wait(60)

    thread = threading.Thread(target=other)
    with compiled_together(CUDA):
        thread.start()
        inside.wait(0.1)  # it would be by then
    left.set()
    thread.join()
    kernel[(1,)](1)
    assert kernel.launches[-1]["warmup"] is False


def test_a_kernel_that_cannot_be_compiled_says_so_at_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to the page that is read, nor to all after it: the next block compiles as well."""
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    broken, ready = threading.Barrier(1), list[tuple[int, int]]()
    broken.abort()
    for kernel in (Kernel(broken), Kernel(threading.Barrier(1))):
        with compiled_together(CUDA, lambda *each: ready.append(each)):
            kernel[(1,)](1)
    assert ready == [(1, 1)] and kernel.loaded


LAUNCHER = """
#include <Python.h>
static PyObject *launch(PyObject *self, PyObject *given) { return PyUnicode_FromString("%s"); }
static PyMethodDef methods[] = {{"launch", launch, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "launcher", NULL, -1, methods};
PyMODINIT_FUNC PyInit_launcher(void) { return PyModule_Create(&module); }
"""


@pytest.mark.skipif(which("cc") is None, reason="needs a C compiler")
def test_a_launcher_that_is_loaded_again_changes_no_other(tmp_path: Path) -> None:
    """All of Triton's have one name: Python puts the first into the module of the second."""
    for name in "ab":
        (tmp_path / name).mkdir()
        source, target = tmp_path / name / "launcher.c", tmp_path / name / "launcher.so"
        source.write_text(LAUNCHER % name)
        include = f"-I{sysconfig.get_paths()['include']}"
        subprocess.run(["cc", "-shared", "-fPIC", include, source, "-o", target], check=True)
    a, b, again = (
        build._load_module_from_path("launcher", str(tmp_path / name / "launcher.so")) for name in "aba"
    )
    assert [each.launch() for each in (a, b, again)] == ["a", "b", "a"]
