"""The fast engine: vision and prompt in few launches, decode steps as CUDA graphs, state on the device.

One page: `step` launches the kernels of a token, `decode` replays them group after group. Many pages:
`batch_step`, and from files to results `batch`. Vision and prompt: `vision` and `prefill`, captured as graphs
by `graphs`. Needs triton, which torch's CUDA builds bring.
"""

import functools
import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import Temporary, cache_directory, home, why_unwritable


class FastEngineUnavailableError(DsocrError):
    """The fast engine cannot run on this machine; names what is missing."""


def require_fast_engine(device: str) -> None:
    """Raise FastEngineUnavailableError, with what is missing, where kernels cannot run on `device`."""
    if find_spec("triton") is None:
        raise FastEngineUnavailableError(
            "engine 'fast' needs triton, which comes with torch's CUDA build: "
            "install that, or use --engine eager"
        )
    if not device.startswith("cuda"):
        raise FastEngineUnavailableError(
            f"engine 'fast' runs on a CUDA device, not on {device}: use --engine eager"
        )
    import torch

    from dsocr_core.models.devices import FULL

    if torch.cuda.is_available() and (capability := torch.cuda.get_device_capability(device)) < FULL:
        raise FastEngineUnavailableError(
            f"engine 'fast' needs compute capability {FULL[0]}.{FULL[1]}, and "
            f"{torch.cuda.get_device_name(device)} has {capability[0]}.{capability[1]}: use --engine eager"
        )
    place_kernel_cache()


def prepare_device(name: str) -> None:
    """Do what each process's first page needs of a device, on any thread: a second. Raises anything."""
    import torch
    import torch.nn.functional as F

    from dsocr_core.engine.device import current, resolve_device

    device = resolve_device(name)
    require_fast_engine(str(device))
    with current(device):  # Triton launches on the current one
        square = torch.ones(32, 32, dtype=torch.bfloat16, device=device)  # makes the device's context
        from triton.runtime.cache import triton_key

        from dsocr_core.engine.fast import decode, prefill, vision  # noqa: F401 - with all that they import
        from dsocr_core.kernels.prefill.activations import quick_gelu

        triton_key()  # the hash of its own files, with which it looks for compiled kernels
        # The libraries of products, of convolutions, and of Triton's launches.
        F.linear(square, square)
        F.conv2d(square.view(1, 16, 8, 8), square.view(-1)[:144].view(1, 16, 3, 3))
        quick_gelu(square)


@functools.cache
def place_kernel_cache() -> TemporaryDirectory[str] | None:
    """Put Triton's cache of kernels where this user can write. By default it is in the home directory."""
    usual = Path(os.environ.get("TRITON_HOME") or home(), ".triton", "cache")
    if "TRITON_CACHE_DIR" in os.environ or why_unwritable(usual) is None:
        return None
    own = cache_directory() / "triton"
    folder = Temporary("triton") if why_unwritable(own) else None
    os.environ["TRITON_CACHE_DIR"] = str(own) if folder is None else folder.name
    return folder
