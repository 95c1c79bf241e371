"""What torch's FLOP counter counts in a checkpoint's own modules, loaded the published way.

They run in this process and in full, on the checkpoint's weights: their routing depends on values. The
embedded checkpoint's code does so on a CPU; the published code needs a GPU. Both compute logits at every
prompt position (Policy.lm_head "all").

One product is theirs alone: transformers makes the rotary angles by multiplying frequencies with positions,
where our core scales them. It has its own name, `rotary_emb`, and is not part of `bmm`.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from analytic_model.measure import MEASURED, Flops, by_name
from analytic_model.workload import Workload
from dsocr_core.model.attention import AttentionUnavailableError
from dsocr_core.model.weights import CheckpointError
from dsocr_core.settings import EMBEDDED_CHECKPOINT
from dsocr_core.stages import Stage
from dsocr_core.vendor.errors import RemoteCodeNotAllowed, VendorNeedsCuda
from dsocr_core.vendor.remote_code import copy_for_import, remote_code

ATTENTION = "eager"
"""The published decoder has this one and flash-attn's; there is no sdpa."""
ROTARY = "rotary_emb"

_MODULES = {Stage.SAM: "sam_model", Stage.CLIP: "vision_model", Stage.PROJECTOR: "projector"}
"""Stage -> attribute of the inner model, published names."""


class VendorMeter:
    """Measures workloads of the modules in a checkpoint directory; one page at a time, eager attention.

    Raises RemoteCodeNotAllowed for any directory but the embedded one unless `trusted`, and VendorNeedsCuda
    when its code wants a GPU that is not here.
    """

    def __init__(self, directory: Path, trusted: bool = False) -> None:
        directory = directory.resolve()
        if directory != EMBEDDED_CHECKPOINT.resolve() and not trusted:
            raise RemoteCodeNotAllowed(
                f"{directory}: its remote code has not been allowed to run; "
                "read it, then add --trust-remote-code"
            )
        on_gpu = torch.cuda.is_available()
        if not on_gpu and any(b".cuda(" in file.read_bytes() for file in directory.glob("*.py")):
            raise VendorNeedsCuda(f"{directory}: its remote code moves everything to a GPU; none is here")
        self.directory, self.device = directory, torch.device("cuda" if on_gpu else "cpu")
        self._dtype = torch.bfloat16 if on_gpu else torch.float32
        self._model = _load(directory).eval().to(self.device).to(self._dtype)

    def measure(self, workload: Workload, attention: str = ATTENTION) -> dict[Stage, Flops]:
        """FLOPs of each stage; prefill without the vision that runs inside it."""
        if attention != ATTENTION:
            raise AttentionUnavailableError(
                f"attention '{attention}': the vendor's modules run {ATTENTION} here"
            )
        length = workload.sequence_length
        ids = torch.full((1, length), 5, device=self.device)
        mask = torch.zeros(1, length, dtype=torch.bool, device=self.device)
        mask[:, : workload.image_tokens] = True
        *tiles, view = (self._pixels(views, side) for views, side in workload.view_groups)
        pages = [(tiles[0] if tiles else torch.zeros_like(view), view)]
        grid = torch.tensor([workload.grid])

        result, modules = self._count(
            input_ids=ids, images=pages, images_seq_mask=mask, images_spatial_crop=grid, use_cache=True
        )
        total: dict[Stage, Flops] = {stage: Counter() for stage in MEASURED}
        total[Stage.PREFILL] = modules["Global"]
        for stage, name in _MODULES.items():
            total[stage] = _of(modules, name)
            total[Stage.PREFILL].subtract(total[stage])
        for _ in range(workload.decode_steps):
            result, modules = self._count(
                input_ids=ids[:, :1], past_key_values=result.past_key_values, use_cache=True
            )
            total[Stage.DECODE] += modules["Global"]
        return {stage: +flops for stage, flops in total.items()}

    def _pixels(self, views: int, side: int) -> Tensor:
        # All zeros would mean "no image" to the published code.
        return torch.ones(views, 3, side, side, dtype=self._dtype, device=self.device)

    def _count(self, **inputs: Any) -> tuple[Any, dict[str, Flops]]:
        """The model's output, and the FLOPs of each module by operator; `Global` has them all."""
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16)
        counter = FlopCounterMode(display=False)
        with torch.no_grad(), autocast, sdpa_kernel(SDPBackend.MATH), counter:
            output = self._model(**inputs)
        modules = {name: by_name(counts) for name, counts in counter.get_flop_counts().items()}
        modules["Global"] = _rotary_apart(modules)
        return output, modules


def _rotary_apart(modules: dict[str, Flops]) -> Flops:
    """All FLOPs, with those of the rotary angles under a name of their own."""
    rotary = _of(modules, ROTARY)
    everything = modules["Global"].copy()
    everything.subtract(rotary)
    everything[ROTARY] = rotary.total()
    return +everything


def _of(modules: dict[str, Flops], name: str) -> Flops:
    """FLOPs of every module of that name."""
    found = [flops for path, flops in modules.items() if path.rpartition(".")[2] == name]
    return sum(found, Counter())


def _load(directory: Path) -> Any:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    # transformers makes a Python module of the directory's name: give it one that can be.
    with tempfile.TemporaryDirectory() as place:
        alias = Path(place) / "checkpoint"
        copy_for_import(directory, remote_code(directory).files, alias)
        try:
            return transformers.AutoModel.from_pretrained(
                alias, _attn_implementation=ATTENTION, trust_remote_code=True, use_safetensors=True
            )
        except (OSError, ValueError, ImportError) as error:
            raise CheckpointError(f"{directory}: transformers cannot load it ({error})") from error
