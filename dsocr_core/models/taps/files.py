"""Tensors of one run as memory-mapped safetensors: a directory with a few files a call and `trace.json`.

A call is one forward pass: 0 is the prefill, the others are decode steps. Format: `docs/trace.md`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dsocr_core.base.bounded_json import InvalidFile, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.taps.table import Layout

FORMAT = "dsocr-trace-1"
INDEX = "trace.json"
BUFFER_BYTES = MAX_INDEX_BYTES = 64 * 1024 * 1024
"""Bytes in memory before a file is written, and most bytes of an index that is read."""
_PERIOD = 65_521
"""Prime after which the weights of places (1, 2, ...) in a fingerprint start again."""
_CHUNK, _MASK = 2**24, (1 << 64) - 1


class Recorder:
    """Writer of one run's tensors. `about` is put into the index.

    `only` are names to record, whole or up to a dot; empty: all. `check` may raise at a tap to end the run.
    """

    def __init__(
        self,
        directory: Path,
        about: Mapping[str, Any],
        only: Sequence[str] = (),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self._about = directory, dict(about)
        self._only, self._check = tuple(only), check
        self._calls: list[dict[str, list[str]]] = []
        self._passes: Counter[str] = Counter()
        self._unwritten: dict[str, Tensor] = {}

    @property
    def call(self) -> int:
        """Number of the current call; -1 before the first."""
        return len(self._calls) - 1

    def begin_call(self) -> None:
        self._check()
        self._flush()
        self._passes.clear()
        self._calls.append({"files": [], "names": []})

    def wants(self, name: str) -> bool:
        """Tell whether a tap's tensor is to be recorded."""
        return not self._only or any(f"{name}.".startswith(f"{part}.") for part in self._only)

    def take(self, name: str, value: Tensor, layout: Layout = "as is") -> None:
        """Record a tensor. A second one of that name in a call gets a number."""
        self._check()
        number = self._passes[name]
        self._passes[name] += 1
        if layout == "channels first":
            value = value.permute(0, 2, 3, 1)
        elif layout != "as is":
            value = value.reshape(-1, value.shape[-1])
            value = value[-1:] if layout == "last row" else value
        self.write(f"{name}@{number}" if number else name, value)

    def write(self, key: str, value: Tensor) -> None:
        """Copy a tensor to the host, and soon to disk. Raises ValueError for a second one of that key."""
        if not self.wants(key.partition("@")[0]):
            return
        names = self._calls[-1]["names"]
        if key in names:
            raise ValueError(f"call {self.call} has a tensor '{key}' already")
        names.append(key)
        # Always a copy: the next operation may overwrite the tensor.
        self._unwritten[key] = value.detach().to("cpu", copy=True).contiguous()
        if sum(tensor.nbytes for tensor in self._unwritten.values()) >= BUFFER_BYTES:
            self._flush()

    def close(self, **more: Any) -> None:
        """Write the rest, and the index with `more` in it."""
        self._flush()
        index = {"format": FORMAT, **self._about, **more, "calls": self._calls}
        (self.directory / INDEX).write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")

    def _flush(self) -> None:
        if not self._unwritten:
            return
        files = self._calls[-1]["files"]
        name = f"call{self.call:04d}-{len(files):03d}.safetensors"
        header = {"format": FORMAT, "call": str(self.call)}
        save_file(self._unwritten, self.directory / name, metadata=header)
        files.append(name)
        self._unwritten = {}


class Dump:
    """Recorded tensors in a directory, mapped and read when they are used. Raises DsocrError.

    Without an index (other engines may write none) each file, in order of names, is a call.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.about: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        """The mapped file of each key of a call."""
        for files, order in self._listed():
            file_of = {key: file for file in map(self._mapped, files) for key in file.keys()}  # noqa: SIM118
            ordered = [key for key in order if key in file_of] or list(file_of)
            self._calls.append({key: file_of[key] for key in ordered})
        if not self._calls:
            raise DsocrError(f"{directory}: holds neither {INDEX} nor safetensors files; give a dump")

    @property
    def calls(self) -> int:
        return len(self._calls)

    def keys(self, call: int) -> Sequence[str]:
        """Keys of a call, in the order in which they were computed if the dump knows it."""
        return list(self._calls[call]) if call < self.calls else []

    def tensor(self, call: int, key: str) -> Tensor:
        """Tensor of a call, mapped from its file. Raises KeyError when there is none."""
        tensor: Tensor = self._calls[call][key].get_tensor(key)
        return tensor

    def _listed(self) -> list[tuple[list[str], list[str]]]:
        """Files and order of keys of every call."""
        index = self.directory / INDEX
        if not index.is_file():
            return [([file.name], []) for file in sorted(self.directory.glob("*.safetensors"))]
        try:
            self.about = parse_json(read_bytes(index, MAX_INDEX_BYTES, follow_links=True), any_number=True)
            calls = [(list(call["files"]), list(call.get("names", ()))) for call in self.about.pop("calls")]
        except (InvalidFile, KeyError, TypeError, AttributeError) as error:
            raise DsocrError(f"{index}: not an index of tensors ({str(error)[:80]})") from error
        if any(Path(file).name != file for files, _ in calls for file in files):
            raise DsocrError(f"{index}: names a file outside its directory")
        return calls

    def _mapped(self, file: str) -> Any:
        try:
            return safe_open(self.directory / file, framework="pt")
        except (OSError, SafetensorError) as error:
            raise DsocrError(f"{self.directory / file}: cannot be read as safetensors ({error})") from error


def fingerprint(tensor: Tensor) -> str:
    """Short hash of a weight's bits, equal on every device. It only tells weights apart."""
    bits = tensor.detach().contiguous().flatten()
    bits = bits.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[bits.element_size()])
    start = total = weighted = 0
    for part in torch.split(bits, _CHUNK):
        places = torch.arange(start, start := start + len(part), device=bits.device) % _PERIOD + 1
        total += int(part.sum(dtype=torch.int64))
        weighted += int((part * places).sum())
    return f"{total & _MASK:016x}{weighted & _MASK:016x}"
