"""What is recorded keeps the buffers that its graph writes to, without a GPU."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from dsocr_core.engine.fast.cuda_graph import record


class Stream:
    def wait_stream(self, other: object) -> None:
        pass


class Graph:
    """Replays nothing."""

    replays = 0

    def replay(self) -> None:
        self.replays += 1


class Pass:
    """Owns a buffer, as a pass over drafted rows does."""

    def __init__(self) -> None:
        self.buffer = torch.zeros(4)
        self.runs = 0

    def run(self) -> None:
        self.runs += 1


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's part of recording, which knows nothing of what it is given."""
    names: dict[str, Any] = {
        "Stream": lambda device: Stream(),
        "current_stream": lambda device: Stream(),
        "stream": lambda stream: nullcontext(),
        "graph": lambda graph, **options: nullcontext(),
        "CUDAGraph": Graph,
    }
    for name, stand_in in names.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)


def test_the_buffers_of_a_recording_last_as_long_as_it_does(no_gpu: None) -> None:
    """A graph holds addresses alone: a pass that only `run` knew was freed, and wrote over what came next."""
    owner = Pass()
    replay = record(owner.run, torch.device("cuda")).replay
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    kept = alive()
    assert kept is not None and kept.runs == 2  # once to compile, once captured
    replay()
    del kept, replay
    gc.collect()
    assert alive() is None
