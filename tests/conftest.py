"""What every test needs: polite threads, and no writes outside the test's own folders."""

import atexit
import gc
import multiprocessing.spawn
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

OWN = Path(tempfile.mkdtemp(prefix="dsocr-tests-"))
"""Runs, caches and the log of this process of the tests, half a gigabyte at times: gone when it ends."""
os.environ["DSOCR_RUNS"] = str(OWN / "runs")  # read once, by the first import below

from dsocr_core.engine.threads import wait_politely  # noqa: E402
from tests.kernels import bf16_kernels  # noqa: E402
from tests.support import warm_interpreter  # noqa: E402

# Until all is imported next to nothing is garbage; `pytest_collection_finish` turns it on again.
gc.disable()
wait_politely()
# transformers copies remote code into a cache of the user's; tests bring their own.
os.environ["HF_MODULES_CACHE"] = str(OWN / "modules")
os.environ["HF_HUB_OFFLINE"] = "1"
# So does the history's index: what an earlier run of the tests left there would be believed.
os.environ["XDG_CACHE_HOME"] = str(OWN / "cache")


def has_gpu() -> bool:
    """torch is asked only beside an NVIDIA driver: half of the test processes never need it."""
    if not Path("/proc/driver/nvidia/version").exists():
        return False
    import torch

    return torch.cuda.is_available()


if not has_gpu():
    # Triton reads it when a kernel is defined, which happens with the first import of one.
    os.environ["TRITON_INTERPRET"] = "1"


class _WithoutTriton(pytest.Module):
    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            if "triton" not in str(error):
                raise
            pytest.skip("triton is not installed: it has no wheel for macOS", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip files that import kernels where there is no Triton."""
    return None if find_spec("triton") else _WithoutTriton.from_parent(parent, path=module_path)


def pytest_unconfigure() -> None:
    shutil.rmtree(OWN, ignore_errors=True)


def pytest_collection_finish() -> None:
    """What was imported by now stays: collections of garbage took a tenth of all time to walk through it."""
    if "torch" in sys.modules:
        bf16_kernels.install()
    gc.collect()
    gc.freeze()
    # Late: pytest collects garbage several times when it ends.
    atexit.register(gc.unfreeze)
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of processes whose start and memory are not what is tested."""
    return warm_interpreter.interpreter(tmp_path_factory.mktemp("interpreter"))


@pytest.fixture
def quick_spawn(interpreter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `multiprocessing` spawns from this process is a fork of one that has the imports."""
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", os.fsencode(interpreter))
