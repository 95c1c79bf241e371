"""A reading of ours with some things set otherwise: by the request, the number type, or in the model.

Facts with their sources: docs/why.md. Hypotheses of a model are in its spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dsocr_core.models.spec import Hypothesis, ngram_hypothesis
from dsocr_core.reading.records import ModelInputs, OcrRequest
from dsocr_core.trace.why.altered import AS_PUBLISHED, Altered


@dataclass(frozen=True)
class Attempt:
    """Settings under which our engine is to read the page."""

    request: OcrRequest
    dtype: str
    """As `Settings.dtype`, resolved."""
    altered: Altered = AS_PUBLISHED
    """Changes of the model that no setting makes."""

    def changed(self, change: Mapping[str, Any]) -> Attempt:
        """The same with some fields set otherwise; `reversed` has the images in the opposite order."""
        own = {name: value for name, value in change.items() if name in vars(self.altered)}
        rest = {name: value for name, value in change.items() if name not in own}
        dtype, turned = rest.pop("dtype", self.dtype), rest.pop("reversed", False)
        if turned:
            first, *more = reversed(self.request.images)
            rest |= {"image": first, "more": tuple(more)}
        return Attempt(replace(self.request, **rest), dtype, replace(self.altered, **own))

    def under(self, hypotheses: Iterable[Hypothesis]) -> Attempt:
        """The same with the changes of all hypotheses."""
        attempt = self
        for hypothesis in hypotheses:
            attempt = attempt.changed(hypothesis.change)
        return attempt


def recorded_hypotheses(inputs: ModelInputs, attempt: Attempt) -> tuple[Hypothesis, ...]:
    """Differences that B itself has recorded: these come before any guess."""
    found = []
    theirs = (inputs.no_repeat_ngram_size, inputs.ngram_window, inputs.ngram_whitelist)
    request = attempt.request
    if theirs != (request.no_repeat_ngram_size, request.ngram_window, request.ngram_whitelist):
        found.append(ngram_hypothesis(*theirs))
    if inputs.dtype != attempt.dtype and inputs.dtype in ("bfloat16", "float16", "float32"):
        found.append(Hypothesis(f"dtype-{inputs.dtype}", inputs.dtype, "dtype", {"dtype": inputs.dtype}))
    return tuple(found)
