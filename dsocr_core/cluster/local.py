"""A cluster on this machine: one process a GPU, pinned to it, or processes that share the cores."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.cluster.worker import SHARDS_IN_FLIGHT

CONNECT_S = 20
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_CONFIG = {
    # The driver counts lost workers itself, as it knows which pages they read.
    "distributed.scheduler.allowed-failures": 0,
    # A third shard on one worker would be missing on another.
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.worker.profile.enabled": False,
}
"""Settings of Dask. A scheduler elsewhere has the first two from its environment (docs/scale.md)."""


def visible_gpus() -> list[str]:
    """GPUs of this machine that CUDA_VISIBLE_DEVICES allows, by the names it uses."""
    if (allowed := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for each in allowed.split(",") if (name := each.strip()) and name != "-1"]
    command = ["nvidia-smi", "--list-gpus"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(number) for number, line in enumerate(listed.splitlines()) if line.startswith("GPU")]


def environments(workers: int | None, gpus: Sequence[str], cores: int, device: str) -> list[dict[str, str]]:
    """The environment of each worker. Raises DsocrError for more workers than GPUs."""
    pinned = gpus if not device.startswith("cpu") else ()
    count = workers or len(pinned) or cores
    if pinned and count > len(pinned):
        raise DsocrError(f"--workers {count}: there are {len(pinned)} GPUs here, and each takes one worker")
    threads = dict.fromkeys(_THREAD_VARIABLES, str(max(1, cores // count)))
    if pinned:
        return [threads | {"CUDA_VISIBLE_DEVICES": gpu} for gpu in pinned[:count]]
    return [threads] * count


@contextmanager
def local_cluster(workers: Sequence[Mapping[str, str]]) -> Iterator[Client]:
    """A client of a cluster on this machine with a worker for each environment, until the block ends.

    Raises DsocrError where a worker dies while it starts.
    """
    quiet()
    options = {
        "host": "127.0.0.1", "nthreads": SHARDS_IN_FLIGHT, "memory_limit": 0, "dashboard_address": None,
        "silence_logs": logging.CRITICAL, "config": _CONFIG, "preload": [__name__],
    }  # fmt: skip
    nannies = {
        number: {"cls": Nanny, "options": {**options, "env": dict(env)}} for number, env in enumerate(workers)
    }
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}}
    with dask.config.set(_CONFIG):
        try:
            cluster = SpecCluster(nannies, scheduler, silence_logs=logging.CRITICAL)
        except (RuntimeError, OSError) as error:
            raise DsocrError(
                f"--cluster local: no workers could be started ({one_line(error, 120)}); give the same "
                "command again, or fewer --workers where memory runs out"
            ) from error
        with cluster, Client(cluster) as client:
            yield client


def replace_lost_workers(client: Client) -> None:
    """Start local workers again that Dask gave up because they died while starting."""
    cluster = client.cluster
    if isinstance(cluster, SpecCluster) and len(cluster.workers) < len(cluster.worker_spec):
        cluster.scale(len(cluster.worker_spec))


def dask_setup(worker: Any) -> None:
    """Dask calls it in each local worker. It ignores Ctrl-C there: a terminal sends it to every process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def joined(address: str) -> Iterator[Client]:
    """A client of a running scheduler. Raises DsocrError when none answers there."""
    quiet()
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise DsocrError(
            f"--cluster {address}: no scheduler answers there ({one_line(error, 120)}); start one with: "
            "dask scheduler"
        ) from error
    with client:
        yield client


def quiet() -> None:
    """Silence Dask's log of lost workers and connections: the driver reports them."""
    # Some of Dask's loggers have a level of their own, which their parents' does not change.
    for name in ("distributed", "tornado", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
