"""From the pattern of the first difference to its cause, and to a sentence in plain words.

What was tapped before the first difference is equal, so only one operation, or one module's weights, stand
between. Which of them it was shows in the pattern: rounding is dense and small, a weight hits its own
channels, a mask or a position acts along the sequence. Where both dumps have fingerprints of the weights,
other weights are no guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dsocr_core.base.formatting import plural, share
from dsocr_core.reading.trace_records import Cause, CauseKind, TensorDifference
from dsocr_core.trace.compare import Measured
from dsocr_core.trace.names import block_of, part_of, stage_of, weights_of

ROUNDING_ULP = 32
"""Rounding may add up along a sum; beyond this it is another computation."""
FEW_CHANNELS = 0.02
MANY_ULP = 999
"""More are said as a part of the standard deviation: they are no rounding, and mean little as a number."""
_SHOWN = 3

_WORDS: dict[CauseKind, str] = {
    "rounding": "rounding order, not weights",
    "other_operation": "another operation: too large for rounding, and the weights are equal",
}
_UNKNOWN_WEIGHTS = "other weights, or another operation: the dumps do not say which weights were used"


def causes_of(
    found: Sequence[Measured], about_a: Mapping[str, Any], about_b: Mapping[str, Any]
) -> tuple[Cause, ...]:
    """Find what explains the first difference, likeliest first; then weights that differ elsewhere."""
    first = next((one for one in found if one.row.differs), None)
    if first is None:
        return ()
    evidence = _Evidence(found, about_a, about_b)
    causes = _explained(first, evidence)
    named = {prefix for cause in causes if cause.kind == "weights" for prefix in weights_of(cause.name)}
    rest = [name for name in evidence.changed if not any(name.startswith(prefix) for prefix in named)]
    if rest:
        words = f"other weights elsewhere: {_listed(rest)}"
        causes.append(Cause("weights", first.row.name, words))
    return tuple(causes)


class _Evidence:
    """Facts that are known beside the tensors."""

    def __init__(
        self, found: Sequence[Measured], about_a: Mapping[str, Any], about_b: Mapping[str, Any]
    ) -> None:
        self._by_name = {(one.row.call, one.key): one for one in found}
        a, b = about_a.get("weights"), about_b.get("weights")
        self.weights_known = isinstance(a, dict) and isinstance(b, dict) and bool(a) and bool(b)
        self.changed: list[str] = []
        if self.weights_known:
            assert isinstance(a, dict) and isinstance(b, dict)
            # A float32 oracle of bfloat16 weights has the same values in other bits.
            if about_a.get("dtype") == about_b.get("dtype"):
                self.changed = [name for name in a if name in b and a[name] != b[name]]
        prompts = about_a.get("prompt_ids"), about_b.get("prompt_ids")
        self.other_prompt = None not in prompts and prompts[0] != prompts[1]

    def changed_at(self, name: str) -> list[str]:
        return [one for one in self.changed if any(one.startswith(part) for part in weights_of(name))]

    def precision(self, one: Measured) -> torch.dtype:
        """Say what a tensor was computed in: a router's weights are float32 of what autocast made
        bfloat16.
        """
        before = self.at(one, "norm2") if part_of(one.row.name).startswith("router.") else None
        narrow: torch.dtype = getattr(torch, _narrower((before or one).row))
        return narrow

    def at(self, like: Measured, part: str) -> Measured | None:
        """Another part of the same block, call and pass."""
        _, mark, view = like.key.partition("@")
        return self._by_name.get((like.row.call, f"{block_of(like.row.name)}.{part}{mark}{view}"))


def _explained(first: Measured, evidence: _Evidence) -> list[Cause]:
    name = first.row.name
    if changed := evidence.changed_at(name):
        return [Cause("weights", name, f"other weights: {_listed(changed)}")]
    if name == "pixels":
        return [Cause("resize", name, "the page's pixels differ: another resize or normalisation")]
    if name == "embeddings" and evidence.other_prompt:
        return [Cause("inputs", name, "the prompts have other token ids")]
    if first.changed is not None:
        return [_router(first, evidence)]
    if is_rounding(first, evidence.precision(first)):
        return [Cause("rounding", name, _rounding_words(first.row))]
    special = _positions(first, evidence) or _resize(first, evidence)
    if special:
        return special
    if evidence.weights_known:
        kind: CauseKind = "other_operation"
        return [Cause(kind, name, _WORDS[kind])]
    return [_by_shape(first)]


def is_rounding(one: Measured, precision: torch.dtype) -> bool:
    """Dense over the channels and small: at most about an ULP on average, nowhere many.

    `precision` is that of the arithmetic before it.
    """
    pattern, error = one.pattern, one.row.error
    ulps = one.row.max_ulp
    if pattern is None or error is None or ulps is None:
        return False
    eps = torch.finfo(precision).eps
    # Products of long sums differ by more than one rounding in float32, whose ULP is small beside them.
    slack = 1.0 if eps > 1e-4 else 64.0
    return (
        error <= eps * slack
        and (ulps <= ROUNDING_ULP * slack or precision != getattr(torch, _narrower(one.row)))
        and not _few_channels(one)
    )


def _few_channels(one: Measured) -> bool:
    """Tell whether the difference keeps to few channels, row after row.

    Of a single row: whether it is in few places and more than a rounding or two.
    """
    pattern = one.pattern
    if pattern is None or pattern.channels_share > FEW_CHANNELS:
        return False
    return bool(pattern.profile) or (one.row.max_ulp or 0) > 2


def _narrower(row: TensorDifference) -> str:
    both = (row.dtype_a, row.dtype_b)
    return next((dtype for dtype in ("bfloat16", "float16") if dtype in both), "float32")


def _rounding_words(row: TensorDifference) -> str:
    if row.dtype_a != row.dtype_b:
        return f"rounding: {row.dtype_a} on A and {row.dtype_b} on B, not weights"
    return _WORDS["rounding"]


def _router(first: Measured, evidence: _Evidence) -> Cause:
    change = first.changed
    assert change is not None
    if change.ties == change.changed:
        words = f"another choice of experts at a tie, for {change.changed} of {change.tokens} tokens"
        return Cause("router_tie", first.row.name, words)
    if evidence.weights_known:
        words = f"other experts for {change.changed} of {change.tokens} tokens, and not at a tie"
        return Cause("other_operation", first.row.name, words)
    return Cause("weights", first.row.name, "other experts, and not at a tie: the router's weights")


def _positions(first: Measured, evidence: _Evidence) -> list[Cause]:
    """Tell positions, by which keys turn otherwise, from a mask, by which values are summed otherwise."""
    name, part = first.row.name, part_of(first.row.name)
    if stage_of(name) != "decoder":
        return []
    kind: CauseKind = "mask_or_positions"
    if part in ("keys", "queries"):
        return [Cause(kind, name, "other positions or another rotary table")]
    if part == "mixed":
        return [Cause(kind, name, f"another attention mask{_along(first)}")]
    if part == "attn" and evidence.at(first, "mixed") is None and _grows(first):
        return [Cause(kind, name, f"another attention mask or other positions{_along(first)}")]
    return []


def _grows(one: Measured) -> bool:
    """Tell whether the error differs much between the sequence's ends: weights act on all rows alike."""
    profile = one.pattern.profile if one.pattern else ()
    return bool(profile) and max(profile[0], profile[-1]) > 2 * min(profile[0], profile[-1])


def _along(one: Measured) -> str:
    profile = one.pattern.profile if one.pattern else ()
    if not profile:
        return ""
    return f" (error {profile[0]:.2g} of the std at the sequence's start, {profile[-1]:.2g} at its end)"


def _resize(first: Measured, evidence: _Evidence) -> list[Cause]:
    name, part = first.row.name, part_of(first.row.name)
    if name in ("sam.embeddings", "clip.embeddings") and not _few_channels(first):
        return [Cause("resize", name, "another resize of the position table")]
    if stage_of(name) == "sam" and part in ("qkv", "mixed"):
        whole = evidence.at(first, "norm1")
        at_once = whole is not None and whole.shape[1:3] == first.shape[1:3]
        if part == "qkv" and (at_once or not evidence.weights_known):
            return []
        if at_once:  # windows keep the table's own size: only attention over the whole grid resizes
            return [Cause("resize", name, "another resize of the relative position table")]
        return [Cause("mask_or_positions", name, "another window layout or other relative positions")]
    return []


def _by_shape(first: Measured) -> Cause:
    """Without knowledge of the weights: the channels tell."""
    if _few_channels(first):
        return Cause("weights", first.row.name, "other weights: few channels differ, all others are equal")
    return Cause("weights", first.row.name, _UNKNOWN_WEIGHTS)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


# --- words ----------------------------------------------------------------------------------------


def sentence_of(first: TensorDifference | None, causes: Sequence[Cause], compared: int, steps: int) -> str:
    """The finding in plain words: what is equal is so in the prefill and `steps` decode steps."""
    if not compared:
        return "Nothing was compared: the two sides have no output of the same name."
    if first is None:
        return f"None of {compared:,} outputs differs in {plural(steps, 'decode step')}."
    block, part = block_of(first.name), part_of(first.name)
    step = f" at decode step {first.call}" if first.call else ""
    differing = share(first.differing_share)
    differs = "they differ" if _is_plural(block) else "it differs"
    if part != block:
        differs = f"its {part} differs"
    words = f"Equal up to {block_words(block)}{step}; {differs} in {differing} of elements"
    if first.max_ulp is not None and first.max_ulp <= MANY_ULP:
        words += f" by at most {first.max_ulp:,} ULP"
    elif first.relative_to_std is not None:
        words += f" by at most {first.relative_to_std:.2g} of the std"
    return f"{words}: {causes[0].words if causes else 'no cause found'}."


def _is_plural(name: str) -> bool:
    return name in ("pixels", "logits") or name.endswith("embeddings")


def block_words(block: str) -> str:
    """`clip.block0` as `CLIP block 0`, `decoder.layer3` as `decoder layer 3`."""
    stage, _, rest = block.partition(".")
    stage = {"sam": "SAM", "clip": "CLIP"}.get(stage, stage)
    for word in ("block", "layer"):
        if rest.startswith(word) and rest[len(word) :].isdecimal():
            return f"{stage} {word} {rest[len(word) :]}"
    return f"{stage} {rest}" if rest else f"the {stage}"
