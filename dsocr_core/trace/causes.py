"""The cause of the first difference, from its pattern, and a sentence about it.

All tensors before the first difference are equal, so one operation, or one module's weights, made it. The
pattern shows which: rounding is dense and small, a weight changes its own channels, a mask or a position acts
along the sequence. Where both dumps have fingerprints of the weights, other weights are certain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dsocr_core.base.formatting import plural, share
from dsocr_core.reading.trace_records import Cause, CauseKind, RouterChange, TensorDifference, block_of
from dsocr_core.trace.compare import Measured
from dsocr_core.trace.names import part_of, stage_of, weights_of

ROUNDING_ULP = 32
"""Most ULP that rounding adds up to along a sum."""
FEW_CHANNELS = 0.02
MANY_ULP = 999
"""ULP beyond which a difference is told as a share of the standard deviation: it is no rounding."""
_SHOWN = 3


def causes_of(
    found: Sequence[Measured], about_a: Mapping[str, Any], about_b: Mapping[str, Any]
) -> tuple[Cause, ...]:
    """Causes of the first difference, the likeliest first; then weights that differ elsewhere."""
    first = next((one for one in found if one.row.differs), None)
    if first is None:
        return ()
    name, evidence = first.row.name, _Evidence(found, about_a, about_b)
    kind, words = _explained(first, evidence)
    causes = [Cause(kind, name, words)]
    named = weights_of(name) if kind == "weights" else ()
    if rest := [each for each in evidence.changed if not each.startswith(named)]:
        causes.append(Cause("weights", name, f"other weights elsewhere: {_listed(rest)}"))
    return tuple(causes)


class _Evidence:
    """Known facts besides the tensors."""

    def __init__(self, found: Sequence[Measured], a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
        self._by_name = {(one.row.call, one.key): one for one in found}
        ours, theirs = (one.get("weights") for one in (a, b))
        self.weights_known = isinstance(ours, dict) and isinstance(theirs, dict) and bool(ours and theirs)
        self.changed: list[str] = []
        # A float32 oracle has the values of the bfloat16 weights in other bits.
        if isinstance(ours, dict) and isinstance(theirs, dict) and a.get("dtype") == b.get("dtype"):
            self.changed = [name for name in ours if name in theirs and ours[name] != theirs[name]]
        prompts = a.get("prompt_ids"), b.get("prompt_ids")
        self.other_prompt = None not in prompts and prompts[0] != prompts[1]

    def at(self, like: Measured, part: str) -> Measured | None:
        """Comparison of another part of the same block, call and pass."""
        _, mark, view = like.key.partition("@")
        return self._by_name.get((like.row.call, f"{block_of(like.row.name)}.{part}{mark}{view}"))


def _explained(first: Measured, evidence: _Evidence) -> tuple[CauseKind, str]:
    name, weights = first.row.name, weights_of(first.row.name)
    if changed := [each for each in evidence.changed if each.startswith(weights)]:
        return "weights", f"other weights: {_listed(changed)}"
    if name == "pixels":
        return "resize", "the page's pixels differ: another resize or normalisation"
    if name == "embeddings" and evidence.other_prompt:
        return "inputs", "the prompts have other token ids"
    if first.changed is not None:
        return _router(first.changed, evidence.weights_known)
    if _is_rounding(first, evidence):
        if first.row.dtype_a != first.row.dtype_b:
            return "rounding", f"rounding: {first.row.dtype_a} on A and {first.row.dtype_b} on B, not weights"
        return "rounding", "rounding order, not weights"
    if special := _positions(first, evidence) or _resize(first, evidence):
        return special
    if evidence.weights_known:
        return "other_operation", "another operation: too large for rounding, and the weights are equal"
    if _few_channels(first):
        return "weights", "other weights: few channels differ, all others are equal"
    return "weights", "other weights, or another operation: the dumps do not say which weights were used"


def _is_rounding(one: Measured, evidence: _Evidence) -> bool:
    """Tell whether it is dense over the channels and small: about an ULP on average, nowhere many."""
    error, ulps = one.row.error, one.row.max_ulp
    if one.pattern is None or error is None or ulps is None or _few_channels(one):
        return False
    # A router's weights are float32 of what autocast made bfloat16.
    before = evidence.at(one, "norm2") if part_of(one.row.name).startswith("router.") else None
    own, precision = _narrower(one.row), _narrower((before or one).row)
    eps = torch.finfo(precision).eps
    # Products of long sums differ by more than one rounding in float32, whose ULP is small beside them.
    slack = 1.0 if eps > 1e-4 else 64.0
    return error <= eps * slack and (ulps <= ROUNDING_ULP * slack or precision != own)


def _few_channels(one: Measured) -> bool:
    """Tell whether the same few channels differ in every row.

    Of a single row: whether it differs in few places, by more than one or two roundings.
    """
    if one.pattern is None or one.pattern.channels_share > FEW_CHANNELS:
        return False
    return bool(one.pattern.profile) or (one.row.max_ulp or 0) > 2


def _narrower(row: TensorDifference) -> torch.dtype:
    both = (row.dtype_a, row.dtype_b)
    narrow = next((dtype for dtype in ("bfloat16", "float16") if dtype in both), "float32")
    found: torch.dtype = getattr(torch, narrow)
    return found


def _router(change: RouterChange, weights_known: bool) -> tuple[CauseKind, str]:
    tokens = f"{change.changed} of {change.tokens} tokens"
    if change.ties == change.changed:
        return "router_tie", f"another choice of experts at a tie, for {tokens}"
    if weights_known:
        return "other_operation", f"other experts for {tokens}, and not at a tie"
    return "weights", "other experts, and not at a tie: the router's weights"


def _positions(first: Measured, evidence: _Evidence) -> tuple[CauseKind, str] | None:
    """Tell positions, which rotate the keys, from a mask, which changes the sum of values."""
    name, part = first.row.name, part_of(first.row.name)
    profile = first.pattern.profile if first.pattern else ()
    along, grows = "", False
    if profile:
        start, end = profile[0], profile[-1]
        along = f" (error {start:.2g} of the std at the sequence's start, {end:.2g} at its end)"
        grows = max(start, end) > 2 * min(start, end)  # weights act on all rows alike
    if stage_of(name) != "decoder":
        return None
    if part in ("keys", "queries"):
        return "mask_or_positions", "other positions or another rotary table"
    if part == "mixed":
        return "mask_or_positions", f"another attention mask{along}"
    if part == "attn" and evidence.at(first, "mixed") is None and grows:
        return "mask_or_positions", f"another attention mask or other positions{along}"
    return None


def _resize(first: Measured, evidence: _Evidence) -> tuple[CauseKind, str] | None:
    name, part = first.row.name, part_of(first.row.name)
    if name in ("sam.embeddings", "clip.embeddings") and not _few_channels(first):
        return "resize", "another resize of the position table"
    if stage_of(name) != "sam" or part not in ("qkv", "mixed"):
        return None
    norm = evidence.at(first, "norm1")
    over_grid = norm is not None and norm.shape[1:3] == first.shape[1:3]
    if part == "qkv" and (over_grid or not evidence.weights_known):
        return None
    if over_grid:  # windows use the table as it is: only attention over the whole grid resizes it
        return "resize", "another resize of the relative position table"
    return "mask_or_positions", "another window layout or other relative positions"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


# --- words ----------------------------------------------------------------------------------------


def sentence_of(first: TensorDifference | None, causes: Sequence[Cause], compared: int, steps: int) -> str:
    """Sentence about a finding. What is equal is so in the prefill and `steps` decode steps."""
    if not compared:
        return "Nothing was compared: the two sides have no output of the same name."
    if first is None:
        return f"None of {compared:,} outputs differs in {plural(steps, 'decode step')}."
    block, part = block_of(first.name), part_of(first.name)
    step = f" at decode step {first.call}" if first.call else ""
    several = block in ("pixels", "logits") or block.endswith("embeddings")
    differs = f"its {part} differs" if part != block else "they differ" if several else "it differs"
    words = f"Equal up to {block_words(block)}{step}; {differs} in {share(first.differing_share)} of elements"
    if first.max_ulp is not None and first.max_ulp <= MANY_ULP:
        words += f" by at most {first.max_ulp:,} ULP"
    elif first.relative_to_std is not None:
        words += f" by at most {first.relative_to_std:.2g} of the std"
    return f"{words}: {causes[0].words if causes else 'no cause found'}."


def block_words(block: str) -> str:
    """Name of a block for people: `clip.block0` is `CLIP block 0`, `decoder.layer3` is `decoder layer 3`."""
    stage, _, rest = block.partition(".")
    stage = {"sam": "SAM", "clip": "CLIP"}.get(stage, stage)
    rest = re.sub(r"^(block|layer)([0-9]+)$", r"\1 \2", rest)
    return f"{stage} {rest}" if rest else f"the {stage}"
