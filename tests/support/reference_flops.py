"""FLOPs that torch's counter counts in the embedded reference code, stage by stage.

Its modules run in full on the checkpoint's weights, with logits at every prompt position (`Policy.lm_head`
"all"). transformers makes the rotary angles by a product, where our core scales them: it is ROTARY, not part
of `bmm`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import transformers
from torch import Tensor

from analytic_model.workload import Workload
from dsocr_core.models.family import load_config, spec_of
from dsocr_core.models.flop_counter import Flops, count_flops
from dsocr_core.models.stages import Stage
from tests.support.paths import MINI

ROTARY = "rotary_emb"


class ReferenceMeter:
    """Measures workloads of the reference modules, one page at a time, with eager attention."""

    def __init__(self) -> None:
        self.device, self._dtype = torch.device("cpu"), torch.float32
        self._family = spec_of(load_config(MINI))
        model = transformers.AutoModel.from_pretrained(
            MINI, _attn_implementation="eager", trust_remote_code=True, use_safetensors=True
        )
        self._model = model.eval().to(self._dtype)

    def measure(self, workload: Workload, attention: str) -> dict[Stage, Flops]:
        """FLOPs of each stage; prefill without the vision that runs inside it."""
        assert attention == "eager"  # the published decoder has this one and flash-attn's
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
        total: dict[Stage, Flops] = {stage: Counter() for stage in self._family.computed}
        total[Stage.PREFILL] = modules["Global"]
        for stage, module in self._family.vision.items():
            total[stage] = _of(modules, module)
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
        output, modules = count_flops(self._model, **inputs)
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
