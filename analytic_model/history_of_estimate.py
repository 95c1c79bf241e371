"""How the first estimate of the vision FLOPs came to be far too low, cause by cause.

It took one 1024 px view whatever the page, 4 CLIP blocks whatever the depth, and 577 projector tokens
whatever the views. Each step here corrects one of the three; the last is what the counter measures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analytic_model import ops, vision
from analytic_model.policy import Policy
from analytic_model.workload import Workload
from dsocr_core.config import ModelConfig
from dsocr_core.stages import Stage

OLD_VIEW = 1024
OLD_CLIP_BLOCKS = 4
OLD_PROJECTOR_TOKENS = 577


@dataclass(frozen=True)
class Step:
    """The estimate after correcting one more assumption, in FLOPs a page batch."""

    name: str
    assumption: str
    """What this step assumes."""
    flops: dict[Stage, int]
    """sam, clip, projector."""

    @property
    def total(self) -> int:
        return sum(self.flops.values())


def waterfall(config: ModelConfig, workload: Workload, policy: Policy | None = None) -> tuple[Step, ...]:
    """From the old estimate to the true vision FLOPs of that workload: four steps, the last exact."""
    policy = policy or Policy()
    single = Workload.single_view(OLD_VIEW, batch=workload.batch)
    blocks = min(OLD_CLIP_BLOCKS, config.clip.layers)
    shallow = replace(config, clip=replace(config.clip, layers=blocks))
    fixed = ops.linear(
        workload.batch * OLD_PROJECTOR_TOKENS,
        config.projector.input_dim,
        config.projector.output_dim,
        policy.element_bytes,
    ).flops

    def sam(views: Workload) -> int:
        return vision.sam(config, views, policy).cost.flops

    def clip(depth: ModelConfig, views: Workload) -> int:
        return vision.clip(depth, views, policy).cost.flops

    def step(name: str, assumption: str, sam_flops: int, clip_flops: int, projector_flops: int) -> Step:
        flops = {Stage.SAM: sam_flops, Stage.CLIP: clip_flops, Stage.PROJECTOR: projector_flops}
        return Step(name, assumption, flops)

    all_sam, all_clip = sam(workload), clip(config, workload)
    projected = vision.projector(config, workload, policy).cost.flops
    views, depth, tokens = workload.num_views, config.clip.layers, workload.vision_tokens
    deeper = f"CLIP has {depth} layers, " + ("as estimated" if depth == blocks else f"not {blocks}")
    return (
        step(
            "old estimate",
            f"one view of {OLD_VIEW} px, {blocks} CLIP layers, {OLD_PROJECTOR_TOKENS} projector tokens",
            sam(single),
            clip(shallow, single),
            fixed,
        ),
        step(
            "all views",
            f"{views} view{'s' if views > 1 else ''}: {', '.join(_sides(workload))}",
            all_sam,
            clip(shallow, workload),
            fixed,
        ),
        step(f"{depth} CLIP layers", deeper, all_sam, all_clip, fixed),
        step("true projector tokens", f"{tokens} projector tokens a page", all_sam, all_clip, projected),
    )


def _sides(workload: Workload) -> list[str]:
    return [f"{count} x {side} px" for count, side in workload.view_groups]
