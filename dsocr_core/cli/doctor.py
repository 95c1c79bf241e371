"""`doctor`: what is on this machine, and what is missing for what."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import FAILED, OK
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import HISTORY, cache_directory, why_unwritable
from dsocr_core.base.specs import Dtype
from dsocr_core.base.system import unbounded
from dsocr_core.cli.answers import Answer
from dsocr_core.models.family import load_config
from dsocr_core.settings import Settings, history_location

State = Literal["ok", "missing", "optional"]
_COLOURS = {"ok": "green", "optional": "yellow", "missing": "red"}
_INSTALL = "pip install -r requirements.txt"
_INSTALL_GPU = "pip install --no-build-isolation -r requirements-gpu.txt"
_NEEDED = (
    "torch", "tokenizers", "safetensors", "pillow", "pypdfium2", "streamlit", "duckdb", "pyarrow",
    "transformers",
)  # fmt: skip
_OPTIONAL = {
    "nvtx": "profilers see no stages; it is for Linux only",
    "flash-attn": f"for --attention flash_attention_2: {_INSTALL_GPU}",
    **dict.fromkeys(
        ("einops", "addict", "easydict", "torchvision"),
        f"the published remote code imports it: {_INSTALL_GPU}",
    ),
}
"""By package what to do where it is not installed."""


@dataclass(frozen=True)
class Finding:
    """One line of the report; `advice` says what to do unless all is well."""

    subject: str
    state: State
    detail: str
    advice: str = ""


def doctor(
    *,
    checkpoint: str = Settings.checkpoint,
    dtype: Dtype = "auto",
    history: str = HISTORY,
    clear: bool = False,
) -> Answer:
    """Say what is on this machine and what is missing for what.

    Args:
        checkpoint: the checkpoint to look at
        dtype: number type that it would be read in
        clear: delete what stopped writers left behind
    """
    findings = list(examine(Settings(checkpoint=checkpoint, dtype=dtype, history=history), clear))
    failed = any(finding.state == "missing" for finding in findings)
    table = Table(title="What is here", title_justify="left")
    for column in ("", "State", "Found", "What to do"):
        table.add_column(column, overflow="fold", no_wrap=column in ("", "State"))
    for finding in findings:
        state = Text(finding.state, style=_COLOURS[finding.state])
        table.add_row(finding.subject, state, Text(finding.detail), Text(finding.advice))
    document = {"findings": [asdict(finding) for finding in findings], "ok": not failed}
    return Answer(document, (table,), FAILED if failed else OK)


def examine(settings: Settings, clear: bool = False) -> Iterator[Finding]:
    """Look at interpreter, GPU, packages, the checkpoint and the history. Never raises for what it finds.

    With `clear`, what writers that were stopped left in the history is deleted.
    """
    yield Finding("python", "ok", platform.python_version())
    yield from _gpus(settings)
    for name in (*_NEEDED, *_OPTIONAL):
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            state: State = "missing" if name in _NEEDED else "optional"
            yield Finding(name, state, "not installed", _OPTIONAL.get(name, _INSTALL))
    for what in unbounded():
        yield Finding("limits", "optional", f"{what}: not bounded on this system", "on Linux it is")
    yield _checkpoint(settings)
    yield from _history(settings, clear)
    cache, why = cache_directory(), why_unwritable(cache_directory())
    advice = "a temporary one is made each time: name a folder with DSOCR_CACHE"
    state = "optional" if why else "ok"
    yield Finding("cache", state, f"{cache}; {why}" if why else str(cache), advice if why else "")


def _gpus(settings: Settings) -> Iterator[Finding]:
    """A line for each GPU: what it is, what it lacks, and whether the checkpoint's weights fit."""
    import torch

    from dsocr_core.engine.device import resolve_dtype
    from dsocr_core.models.devices import Gpu, no_gpu
    from dsocr_core.models.weights import weight_bytes

    if not torch.cuda.is_available():
        advice = "the published checkpoint needs a GPU"
        if "too old" in no_gpu():
            advice = "install a newer driver, or a torch of its CUDA version; " + advice
        yield Finding("GPU", "optional", f"{no_gpu()}; pages are read on the CPU", advice)
        return
    try:
        config = load_config(Path(settings.checkpoint.removeprefix("random:")))
        needed = weight_bytes(config, resolve_dtype(settings.dtype, torch.device("cuda")))
    except DsocrError:
        needed = 0
    for number in range(torch.cuda.device_count()):
        gpu = Gpu.of(torch.device("cuda", number))
        fits, takes = needed <= gpu.free_bytes, ""
        if needed and gpu.has_kernels:
            takes = f"; the checkpoint's weights take {needed / 2**30:.1f} GiB"
        state: State = "missing" if not (gpu.has_kernels and fits) else "optional" if gpu.lacks else "ok"
        advice = gpu.lacks if fits or not gpu.has_kernels else "end what else runs, or give --device cpu"
        yield Finding(f"GPU {number}" if number else "GPU", state, f"{gpu}{takes}", advice)


def _checkpoint(settings: Settings) -> Finding:
    from dsocr_core.models.weights import INDEX_NAME, SINGLE_NAME
    from dsocr_core.page.tokenizer import Tokenizer

    random, directory = settings.checkpoint.startswith("random:"), settings.checkpoint.removeprefix("random:")
    try:
        decoder = load_config(Path(directory)).decoder
        if random:
            return Finding("checkpoint", "ok", f"{directory}: random weights of its sizes")
        Tokenizer.load(Path(directory))
    except DsocrError as error:
        return Finding("checkpoint", "missing", str(error), "give --checkpoint DIRECTORY")
    if not any(Path(directory, name).is_file() for name in (INDEX_NAME, SINGLE_NAME)):
        absent, advice = f"{directory}: no {INDEX_NAME}", "download the whole checkpoint"
        return Finding("checkpoint", "missing", absent, advice)
    sizes = f"{decoder.layers} layers of {decoder.hidden_size}, {decoder.routed_experts} experts"
    embedded = " (embedded: knows rendered pages only)" if settings.is_embedded else ""
    return Finding("checkpoint", "ok", f"{directory}: {sizes}{embedded}")


def _history(settings: Settings, clear: bool) -> Iterator[Finding]:
    """Say where runs are recorded, with a line for each directory of a writer that did not finish."""
    if not settings.history:
        yield Finding("history", "optional", "runs are not recorded", "give --history a path")
        return
    try:
        from dsocr_core.runs.storage import Storage

        storage = Storage(history_location(settings))
        runs, left = len(storage.names()), storage.leftovers(clear)
    except (DsocrError, ImportError) as error:
        yield Finding("history", "missing", str(error), "give --history a path that can be read")
        return
    found, why = f"{storage.location}: runs {runs:,}", why_unwritable(Path(storage.location))
    advice = "runs are only read: name a folder that takes files with DSOCR_RUNS"
    yield Finding("history", "missing", f"{found}; {why}", advice) if why else Finding("history", "ok", found)
    for item in left:
        detail = f"{item.path}: {item.bytes:,} bytes, {item.age_s / 60:.0f} minutes old"
        if item.stays:
            advice = "it could not be deleted: do it by hand, as its owner"
            yield Finding("leftover", "missing", f"{detail}; {item.stays}", advice)
        elif clear:
            yield Finding("leftover", "ok", f"cleared {detail}")
        else:
            yield Finding("leftover", "optional", detail, "a writer was stopped: doctor --clear")
