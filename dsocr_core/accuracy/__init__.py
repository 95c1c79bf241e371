"""Accuracy by the rules of OmniDocBench 1.5: text edit distance, reading order and table TEDS. No torch.

The rules are those of the benchmark's evaluator (`EVALUATOR`), read from its code and written anew. Where a
rule is a slip of that code it is a rule all the same, and the comment says so: a figure that cannot be set
beside the published ones is of no use.
"""

from __future__ import annotations

from typing import Literal

EVALUATOR = "OmniDocBench 1.5 (evaluator of 19 December 2025, 0f22218)"
"""Whose rules these are, as it is stamped on every report."""

Layout = Literal["omnidocbench", "olmocr"]
"""Benchmarks whose evaluators read a folder of Markdown."""
