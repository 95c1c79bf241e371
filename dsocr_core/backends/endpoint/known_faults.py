"""Faults of servers that are known to make them read badly: which versions have them, and the way out.

Claims of the threads that are named; none was tried again here. The version is asked for where one is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dsocr_core.backends.endpoint.connection import EndpointError, Server
from dsocr_core.backends.endpoint.flavours import base_address
from dsocr_core.base.specs.kinds import EndpointSpec, Flavour
from dsocr_core.base.visible import visible


@dataclass(frozen=True)
class Fault:
    words: str
    versions: str
    """Versions that have it, as far as the thread says."""
    advice: str
    source: str
    first_good: tuple[int, ...] | None = None
    """The first version without it; None where no thread names one."""


FAULTS: Mapping[Flavour, tuple[Fault, ...]] = {
    "llamacpp": (
        Fault(
            "pages fail with 'number of bitmaps (1) does not match number of markers (0)'",
            "seen in build 8533, still open",
            "start it without --chat-template and give a short prompt, '<|grounding|>OCR'",
            "ggml-org/llama.cpp#21022, #17400",
        ),
        Fault(
            "large pages are read without tiles",
            "builds before #24717, of June 2026",
            "take a later build, or compare it under --preset base",
            "ggml-org/llama.cpp#24717",
        ),
        Fault(
            "it has no n-gram rule, so loops run to the limit",
            "all builds that are known",
            "set body.dry_multiplier and the other DRY fields",
            "ggml-org/llama.cpp#17400",
        ),
    ),
    "ollama": (
        Fault(
            "about a quarter of the pages loop: it has no n-gram rule",
            "reported of 0.13; where it ended is not known",
            "give a published prompt, and expect pages that end at the limit",
            "ollama/ollama#13345, #13168",
        ),
        Fault(
            "Q8_0 loops and Q4_K_M reads worse",
            "own quantised weights",
            "take the F16 weights that it ships",
            "ollama/ollama#13193",
        ),
    ),
    "vllm": (
        Fault(
            "DeepSeek-OCR is not among its models",
            "before 0.11.1",
            "take 0.11.1 or later",
            "deepseek-ai/DeepSeek-OCR#244",
            (0, 11, 1),
        ),
        Fault(
            "the n-gram rule is skipped at temperature 0",
            "builds before #28617, of November 2025",
            "take a later one",
            "vllm-project/vllm#28617",
        ),
        Fault(
            "Model Runner V2 refuses the n-gram rule's class",
            "where that runner is on; open in September 2026",
            "run it with the first model runner",
            "vllm-project/vllm#57618, #57540",
        ),
    ),
    "sglang": (
        Fault(
            "the n-gram rule is not applied",
            "all, unless it is asked for",
            "start it with --enable-custom-logit-processor and set body.custom_logit_processor",
            "sgl-project/sglang#12415",
        ),
        Fault(
            "DeepSeek-OCR-2 is read in tiles of 640 pixels, not 768",
            "builds before #38996, of September 2026",
            "take a later one",
            "sgl-project/sglang#38996",
        ),
    ),
}
_ASKED: Mapping[Flavour, tuple[str, str]] = {
    "llamacpp": ("/props", "build_info"), "ollama": ("/api/version", "version"),
    "vllm": ("/version", "version"), "sglang": ("/get_server_info", "version"),
}  # fmt: skip
"""By flavour the path below the server's root that says its version, and the field."""
_WAIT_S = 3.0


def version_of(spec: EndpointSpec) -> str | None:
    """Ask a server for its version; None where it says nothing. It is sent no key."""
    if spec.flavour not in _ASKED:
        return None
    path, field = _ASKED[spec.flavour]
    try:
        said = Server(base_address(spec).removesuffix("/v1"), timeout_s=_WAIT_S, attempts=1).get(path)
    except EndpointError:
        return None
    found = said.get(field)
    return visible(found)[:40] if isinstance(found, str) and found else None


def faults_of(spec: EndpointSpec, version: str | None) -> list[Fault]:
    """The faults that a server of that version may have."""
    number = re.match(r"v?(\d+(?:\.\d+)+)", version or "")
    parts = tuple(int(part) for part in number[1].split(".")) if number else None
    return [
        fault
        for fault in FAULTS.get(spec.flavour, ())
        if fault.first_good is None or parts is None or parts < fault.first_good
    ]
