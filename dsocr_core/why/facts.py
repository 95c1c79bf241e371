"""Settings and inputs of both sides, line by line, before any text is compared."""

from __future__ import annotations

from collections.abc import Mapping

from dsocr_core.inputs.prompt import build_prompt
from dsocr_core.outputs.input_parity import MODEL_LINES, compare_inputs
from dsocr_core.parity_records import InputLine, input_line
from dsocr_core.records import OcrRequest
from dsocr_core.why.match import Other
from dsocr_core.why.reader import Reading

_FIRST, _LAST = ("prompt",), ("quantisation", "stop reason")
_WORDS = {"eos": "end token", "length": "token limit", None: None}


def fact_lines(request: OcrRequest, a: Reading, other: Other) -> tuple[InputLine, ...]:
    """One line a fact: equal, differs, or not known where a side does not tell.

    `request` is A's. The prompt stands as text and as ids; tiles with their number and size.
    """
    facts: Mapping[str, tuple[str | None, str | None]] = {
        "prompt": (build_prompt(request.prompt, request.template), other.prompt and other.prompt.strip()),
        "quantisation": ("none", other.quantisation),
        "stop reason": (_WORDS[a.finish], _WORDS[other.finish]),
    }
    lines = {line.name: line for line in compare_inputs(a.inputs, other.inputs)}
    return (
        *(input_line(name, *facts[name]) for name in _FIRST),
        *(lines[name] for name in MODEL_LINES),
        *(input_line(name, *facts[name], decides=name != "stop reason") for name in _LAST),
    )
