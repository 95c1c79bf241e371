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

from analytic_model.workload import Workload
from dsocr_core.models.family import load_config, spec_of
from dsocr_core.models.flop_counter import Flops, count_flops
from dsocr_core.models.stages import Stage
from tests.support.paths import MINI

ROTARY = "rotary_emb"


class ReferenceMeter:
    """Measures workloads of the reference modules, one page at a time, with eager attention."""

    def __init__(self) -> None:
        self._family = spec_of(load_config(MINI))
        model = transformers.AutoModel.from_pretrained(
            MINI, _attn_implementation="eager", trust_remote_code=True, use_safetensors=True
        )
        self._model = model.eval().to(torch.float32)

    def measure(self, workload: Workload, attention: str) -> dict[Stage, Flops]:
        """FLOPs of each stage; prefill without the vision that runs inside it."""
        assert attention == "eager"  # the published decoder has this one and flash-attn's
        ids = torch.full((1, workload.sequence_length), 5)
        mask = torch.arange(workload.sequence_length)[None] < workload.image_tokens
        # All zeros would mean "no image" to the published code.
        *tiles, view = (torch.ones(views, 3, side, side) for views, side in workload.view_groups)
        pages = [(tiles[0] if tiles else torch.zeros_like(view), view)]
        grid = torch.tensor([workload.grid])
        result, modules, whole = self._count(
            input_ids=ids, images=pages, images_seq_mask=mask, images_spatial_crop=grid
        )
        total: dict[Stage, Flops] = {stage: Counter() for stage in self._family.computed}
        total |= {stage: _of(modules, module) for stage, module in self._family.vision.items()}
        total[Stage.PREFILL] = whole
        for stage in self._family.vision:
            whole.subtract(total[stage])
        for _ in range(workload.decode_steps):
            result, _, whole = self._count(input_ids=ids[:, :1], past_key_values=result.past_key_values)
            total[Stage.DECODE] += whole
        return {stage: +flops for stage, flops in total.items()}

    def _count(self, **inputs: Any) -> tuple[Any, dict[str, Flops], Flops]:
        """The model's output, the FLOPs of each module by operator, and all of them, the angles' apart."""
        output, modules = count_flops(self._model, use_cache=True, **inputs)
        whole, rotary = modules["Global"].copy(), _of(modules, ROTARY)
        whole.subtract(rotary)
        whole[ROTARY] = rotary.total()
        return output, modules, +whole


def _of(modules: dict[str, Flops], name: str) -> Flops:
    """FLOPs of every module of that name."""
    return sum((flops for path, flops in modules.items() if path.rpartition(".")[2] == name), Counter())
