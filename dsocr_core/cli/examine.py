"""Checks of `doctor`: interpreter, GPU, packages, the checkpoint and the history."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import cache_directory, why_unwritable
from dsocr_core.base.system import unbounded
from dsocr_core.base.temporary import PREFIX
from dsocr_core.engine.device import resolve_dtype
from dsocr_core.models.devices import Gpu, no_gpu
from dsocr_core.models.family import load_config
from dsocr_core.models.weights import INDEX_NAME, SINGLE_NAME, weight_bytes
from dsocr_core.page.tokenizer import Tokenizer
from dsocr_core.settings import Settings, history_location

if TYPE_CHECKING:
    from dsocr_core.runs.storage import Leftover

State = Literal["ok", "missing", "optional"]

_PACKAGES = ("tokenizers", "safetensors", "pillow", "pypdfium2", "streamlit", "duckdb", "pyarrow")
_TRANSFORMERS_TOO_NEW = (4, 48)
"""From here on the class that the published code imports for its attention is gone."""
_VENDOR_PACKAGES = ("einops", "addict", "easydict", "torchvision")
_INSTALL_GPU = "pip install --no-build-isolation -r requirements-gpu.txt"


@dataclass(frozen=True)
class Finding:
    """One line of the report; `advice` says what to do unless all is well."""

    subject: str
    state: State
    detail: str
    advice: str = ""


def examine(settings: Settings, clear: bool = False) -> list[Finding]:
    """Look at interpreter, GPU, packages, the checkpoint and the history. Never raises for what it finds.

    With `clear`, what writers that were stopped left in the history is deleted.
    """
    findings = [Finding("python", "ok", platform.python_version()), Finding("torch", "ok", torch.__version__)]
    findings += _gpus(settings)
    findings += [_package(name) for name in _PACKAGES] + [_ranges()]
    findings += [
        Finding("limits", "optional", f"{what}: not bounded on this system", "on Linux it is")
        for what in unbounded()
    ]
    findings += [_transformers(_version("transformers")), _flash_attention()]
    findings += [_vendor_package(name) for name in _VENDOR_PACKAGES]
    findings.append(_checkpoint(settings))
    return [*findings, *_history(settings, clear), _cache(), *_temporary(clear)]


def _gpus(settings: Settings) -> list[Finding]:
    """A line for each GPU: what it is, what it lacks, and whether the checkpoint's weights fit."""
    if not torch.cuda.is_available():
        advice = "the published checkpoint needs a GPU"
        if "too old" in no_gpu():
            advice = "install a newer driver, or a torch of its CUDA version; " + advice
        return [Finding("GPU", "optional", f"{no_gpu()}; pages are read on the CPU", advice)]
    try:
        config = load_config(Path(settings.checkpoint.removeprefix("random:")))
        needed = weight_bytes(config, resolve_dtype(settings.dtype, torch.device("cuda")))
    except DsocrError:
        needed = 0
    return [_gpu(number, needed) for number in range(torch.cuda.device_count())]


def _gpu(number: int, needed: int) -> Finding:
    gpu = Gpu.of(torch.device("cuda", number))
    subject, found = f"GPU {number}" if number else "GPU", str(gpu)
    if not gpu.has_kernels:
        return Finding(subject, "missing", found, gpu.lacks)
    found += f"; the checkpoint's weights take {needed / 2**30:.1f} GiB" if needed else ""
    if needed > gpu.free_bytes:
        return Finding(subject, "missing", found, "end what else runs there, or give --device cpu")
    return Finding(subject, "optional" if gpu.lacks else "ok", found, gpu.lacks)


def _package(name: str) -> Finding:
    found = _version(name)
    if found is None:
        return Finding(name, "missing", "not installed", "pip install -r requirements.txt")
    return Finding(name, "ok", found)


def _ranges() -> Finding:
    if (found := _version("nvtx")) is None:
        return Finding("nvtx", "optional", "not installed", "profilers see no stages; it is for Linux only")
    return Finding("nvtx", "ok", found)


def _transformers(found: str | None) -> Finding:
    if found is None:
        return Finding("transformers", "missing", "not installed", "pip install -r requirements.txt")
    major, minor = (int(part) for part in found.split(".")[:2])
    if (major, minor) >= _TRANSFORMERS_TOO_NEW:
        advice = "the vendor backend needs 4.46.3 or 4.47.1; give --vendor.interpreter one that has it"
        return Finding("transformers", "optional", found, advice)
    return Finding("transformers", "ok", found)


def _vendor_package(name: str) -> Finding:
    found = _version(name)
    if found is None:
        return Finding(
            name, "optional", "not installed", f"the published remote code imports it: {_INSTALL_GPU}"
        )
    return Finding(name, "ok", found)


def _flash_attention() -> Finding:
    found = _version("flash-attn")
    if found is None:
        return Finding(
            "flash-attn", "optional", "not installed", f"for --attention flash_attention_2: {_INSTALL_GPU}"
        )
    return Finding("flash-attn", "ok", found)


def _checkpoint(settings: Settings) -> Finding:
    subject, directory = "checkpoint", Path(settings.checkpoint.removeprefix("random:"))
    try:
        config = load_config(directory)
        if settings.checkpoint.startswith("random:"):
            return Finding(subject, "ok", f"{directory}: random weights of its sizes")
        Tokenizer.load(directory)
    except DsocrError as error:
        return Finding(subject, "missing", str(error), "give --checkpoint DIRECTORY")
    if not any((directory / name).is_file() for name in (INDEX_NAME, SINGLE_NAME)):
        return Finding(subject, "missing", f"{directory}: no {INDEX_NAME}", "download the whole checkpoint")
    decoder = config.decoder
    return Finding(
        subject,
        "ok",
        f"{directory}: {decoder.layers} layers of {decoder.hidden_size}, {decoder.routed_experts} experts"
        + (" (embedded: knows rendered pages only)" if settings.is_embedded else ""),
    )


def _history(settings: Settings, clear: bool) -> list[Finding]:
    """Say where runs are recorded, with a line for each directory of a writer that did not finish."""
    if not settings.history:
        return [Finding("history", "optional", "runs are not recorded", "give --history a path")]
    try:
        from dsocr_core.runs.storage import open_storage

        storage = open_storage(history_location(settings))
        runs = len(storage.names())
        left = storage.leftovers(clear)
    except (DsocrError, ImportError) as error:
        return [Finding("history", "missing", str(error), "give --history a path that can be read")]
    why = why_unwritable(Path(storage.location))
    advice = "runs are only read: name a folder that takes files with DSOCR_RUNS"
    found = Finding("history", "ok", f"{storage.location}: runs {runs:,}")
    return [
        replace(found, state="missing", detail=f"{found.detail}; {why}", advice=advice) if why else found,
        *_leftovers(left, clear),
    ]


def _cache() -> Finding:
    cache = cache_directory()
    if (why := why_unwritable(cache)) is None:
        return Finding("cache", "ok", str(cache))
    advice = "a temporary one is made each time: name a folder that takes files with DSOCR_CACHE"
    return Finding("cache", "optional", f"{cache}; {why}", advice)


def _temporary(clear: bool) -> list[Finding]:
    """A line for each temporary directory of a command that was killed."""
    from dsocr_core.runs.storage import leftovers_in

    place = Path(tempfile.gettempdir())
    try:
        return _leftovers(leftovers_in(place, PREFIX, clear), clear)
    except (DsocrError, OSError):
        return []


def _leftovers(left: Iterable[Leftover], cleared: bool) -> list[Finding]:
    findings = []
    for item in left:
        detail = f"{item.path}: {item.bytes:,} bytes, {item.age_s / 60:.0f} minutes old"
        if item.stays:
            advice = "it could not be deleted: do it by hand, as its owner"
            findings.append(Finding("leftover", "missing", f"{detail}; {item.stays}", advice))
        elif cleared:
            findings.append(Finding("leftover", "ok", f"cleared {detail}"))
        else:
            findings.append(Finding("leftover", "optional", detail, "a writer was stopped: doctor --clear"))
    return findings


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
