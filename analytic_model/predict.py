"""Cost of a workload: FLOPs, bytes and parameters of every stage, in closed form.

Fast enough for a slider: no loop over tokens, positions or steps, and no cache.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from analytic_model import decoder, vision
from analytic_model.policy import DTYPE_BYTES, Dtype, Policy
from analytic_model.stage_cost import StageCost
from analytic_model.workload import Workload
from dsocr_core.models.config import DecoderConfig, ModelConfig
from dsocr_core.models.family import spec_of
from dsocr_core.models.stages import Stage

_NOT_COUNTED = (
    "preprocessing, tokenizer and postprocessing: no work of the model",
    "choosing the token: the n-gram rule and the argmax over the logits",
    "comparisons, casts, indexing and the building of masks and position tables as FLOPs",
    "copies that only change a layout, and everything that an allocator, a launch or a wait costs",
    "bytes that a kernel reads again when its tiles do not fit on the chip, or that a cache saves",
    "a fused norm, softmax or activation is assumed: one pass over its input; eager code makes several",
    "experts' weights are those expected under even routing; of a batch no lower bound: rows may share",
)


@dataclass(frozen=True)
class Prediction:
    """Costs of the stages. Prefill is the language model alone, without vision."""

    stages: dict[Stage, StageCost]
    not_counted: tuple[str, ...]
    workload: Workload
    policy: Policy
    parameters: dict[str, int]
    """Parameters of each module and in total, from `parameters`."""

    def with_nested(self, stage: Stage) -> StageCost:
        """Cost of a stage with those inside it: prefill with vision."""
        if stage != Stage.PREFILL:
            return self.stages[stage]
        parts = [cost for name, cost in self.stages.items() if name != Stage.DECODE]
        operators = tuple(operator for part in parts for operator in part.operators)
        return StageCost(stage, operators, sum(part.boundary_bytes for part in parts))


def predict(config: ModelConfig, workload: Workload, policy: Policy | None = None) -> Prediction:
    """Cost of every stage of a workload, on a model of these sizes."""
    policy = policy or Policy()
    context, steps = workload.sequence_length, workload.decode_steps
    costs = (
        *vision.costs(config, workload, policy),
        decoder.prefill(config, workload, policy),
        decoder.decode(config, context, steps, policy, workload.batch),
    )
    stages = {cost.stage: cost for cost in costs}
    return Prediction(stages, _not_counted(policy), workload, policy, parameters(config))


def decode_step(config: ModelConfig, context: int, policy: Policy | None = None, batch: int = 1) -> StageCost:
    """Cost of one decoded token of each page, with `context` positions in the cache before it."""
    return decoder.decode(config, context, 1, policy or Policy(), batch)


def kv_cache_bytes(config: DecoderConfig, positions: int, dtype: Dtype = "bfloat16", batch: int = 1) -> int:
    """Bytes of the keys and values of that many positions."""
    return 2 * config.layers * batch * positions * config.heads * config.head_dim * DTYPE_BYTES[dtype]


def _not_counted(policy: Policy) -> tuple[str, ...]:
    notes = list(_NOT_COUNTED)
    if policy.ignore_torch_unsupported_flops and policy.attention == "flash_attention_2":
        notes.append("FLOPs of FlashAttention-2's core in the decoder: torch's counter does not see them")
    if policy.ignore_torch_unsupported_flops and policy.counter == "cpu":
        notes.append("FLOPs of torch's fused attention on the CPU: torch's counter does not see them")
    if not policy.vision_window_padding:
        notes.append("zeros that fill SAM's last windows")
    if policy.causal == "halved":
        notes.append("the decoder's attention to later positions, which the mask throws away")
    if policy.lm_head == "last":
        notes.append("logits of prompt positions but the last one")
    return tuple(notes)


def parameters(config: ModelConfig) -> dict[str, int]:
    """Learned parameters of each module, and `total`."""
    spec = spec_of(config)
    preset = spec.presets[spec.preset]
    # A page with both view sizes has every operator.
    views = tuple(dict.fromkeys((preset.tile_size, preset.view_size)))
    workload = Workload(views, newline=spec.newline)
    stages = (*vision.costs(config, workload, Policy()), decoder.prefill(config, workload, Policy()))
    counts: Counter[str] = Counter()
    for operator in (operator for stage in stages for operator in stage.operators):
        counts[operator.module.partition(".")[0]] += operator.cost.parameters
    return {**(+counts), "total": counts.total()}
