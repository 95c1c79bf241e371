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
from dsocr_core.base.system import memory_of
from dsocr_core.cli.answers import Answer
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import load_config
from dsocr_core.settings import Settings, history_location

State = Literal["ok", "missing", "optional"]
_INSTALL = "pip install -r requirements.txt"
_GPU = "pip install --no-build-isolation -r requirements-gpu.txt"
_NEEDED = (
    "torch", "tokenizers", "safetensors", "pillow", "pypdfium2", "streamlit", "duckdb", "pyarrow",
    "transformers",
)  # fmt: skip
_OPTIONAL = {
    "nvtx": "profilers see no stages; it is for Linux only",
    "flash-attn": f"for --attention flash_attention_2: {_GPU}",
    **dict.fromkeys(("einops", "addict", "easydict", "torchvision"), f"the remote code imports it: {_GPU}"),
}
"""By package what to do where it is not installed."""


@dataclass(frozen=True)
class Finding:
    """One line of the report. `advice` says what to do unless all is well."""

    subject: str
    state: State
    detail: str
    advice: str = ""


def doctor(*, checkpoint: str = Settings.checkpoint, history: str = HISTORY) -> Answer:
    """Say what is on this machine and what is missing for what.

    Args:
        checkpoint: the checkpoint to look at
    """
    findings = list(examine(Settings(checkpoint=checkpoint, history=history)))
    failed = any(finding.state == "missing" for finding in findings)
    table = Table(title="What is here", title_justify="left")
    for column in ("", "State", "Found", "What to do"):
        table.add_column(column, overflow="fold", no_wrap=column in ("", "State"))
    for finding in findings:
        table.add_row(*(Text(words) for words in asdict(finding).values()))
    document = {"findings": [asdict(finding) for finding in findings], "ok": not failed}
    return Answer(document, (table,), FAILED if failed else OK)


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at interpreter, GPU, packages, the checkpoint and the history. Never raises for what it finds."""
    yield Finding("python", "ok", platform.python_version())
    directory, config = settings.checkpoint.removeprefix("random:"), None
    try:
        config = load_config(Path(directory))
        sizes = _checkpoint(settings, Path(directory), config)
    except DsocrError as error:
        sizes = Finding("checkpoint", "missing", str(error), "give --checkpoint DIRECTORY")
    yield from _gpus(config)
    for name in (*_NEEDED, *_OPTIONAL):
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            state: State = "missing" if name in _NEEDED else "optional"
            yield Finding(name, state, "not installed", _OPTIONAL.get(name, _INSTALL))
    if memory_of() is None:
        yield Finding("limits", "optional", "memory is not bounded on this system", "on Linux it is")
    yield sizes
    yield from _history(settings)
    cache, why = cache_directory(), why_unwritable(cache_directory())
    advice = "a temporary one is made each time: name a folder with DSOCR_CACHE"
    yield (
        Finding("cache", "optional", f"{cache}; {why}", advice) if why else Finding("cache", "ok", str(cache))
    )


def _gpus(config: ModelConfig | None) -> Iterator[Finding]:
    """A line for each GPU: what it is, what it lacks, and whether the checkpoint's weights fit."""
    import torch

    from dsocr_core.engine.device import no_gpu
    from dsocr_core.models.devices import Gpu
    from dsocr_core.models.weights import weight_bytes

    if not torch.cuda.is_available():
        newer = "install a newer driver, or a torch of its CUDA version; " * ("too old" in no_gpu())
        detail, advice = f"{no_gpu()}; pages are read on the CPU", "the published checkpoint needs a GPU"
        yield Finding("GPU", "optional", detail, newer + advice)
        return
    needed = weight_bytes(config, torch.bfloat16) if config else 0
    for number in range(torch.cuda.device_count()):
        gpu = Gpu.of(torch.device("cuda", number))
        fits, takes = needed <= gpu.free_bytes, f"; the checkpoint's weights take {needed / 2**30:.1f} GiB"
        state: State = "missing" if not (gpu.has_kernels and fits) else "optional" if gpu.lacks else "ok"
        advice = gpu.lacks if fits or not gpu.has_kernels else "end what else runs, or give --device cpu"
        yield Finding(f"GPU {number}" if number else "GPU", state, f"{gpu}{takes if needed else ''}", advice)


def _checkpoint(settings: Settings, directory: Path, config: ModelConfig) -> Finding:
    """Raises DsocrError for a tokenizer that cannot be loaded."""
    from dsocr_core.models.weights import INDEX_NAME, SINGLE_NAME
    from dsocr_core.page.tokenizer import Tokenizer

    if settings.checkpoint.startswith("random:"):
        return Finding("checkpoint", "ok", f"{directory}: random weights of its sizes")
    Tokenizer.load(directory)
    if not any((directory / name).is_file() for name in (INDEX_NAME, SINGLE_NAME)):
        absent, advice = f"{directory}: no {INDEX_NAME}", "download the whole checkpoint"
        return Finding("checkpoint", "missing", absent, advice)
    decoder, embedded = config.decoder, " (embedded: knows rendered pages only)" * settings.is_embedded
    sizes = f"{decoder.layers} layers of {decoder.hidden_size}, {decoder.routed_experts} experts"
    return Finding("checkpoint", "ok", f"{directory}: {sizes}{embedded}")


def _history(settings: Settings) -> Iterator[Finding]:
    """Say where runs are recorded."""
    if not settings.history:
        yield Finding("history", "optional", "runs are not recorded", "give --history a path")
        return
    try:
        from dsocr_core.runs.storage import RunStorage

        storage = RunStorage(history_location(settings))
        runs = len(storage.names())
    except (DsocrError, ImportError) as error:
        yield Finding("history", "missing", str(error), "give --history a path that can be read")
        return
    found, why = f"{storage.location}: runs {runs:,}", why_unwritable(Path(storage.location))
    advice = "runs are only read: name a folder that takes files with DSOCR_RUNS"
    yield Finding("history", "missing", f"{found}; {why}", advice) if why else Finding("history", "ok", found)
