"""Figures that Prometheus reads at /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dsocr_core.reading.records import OcrResult

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self.requests = Counter(
            "dsocr_requests", "Chat completions by how they ended", ["outcome"], registry=registry
        )
        self._prompt = Counter("dsocr_prompt_tokens", "Tokens of prompts, images included", registry=registry)
        self._new = Counter("dsocr_generated_tokens", "New tokens", registry=registry)
        self.waiting = Gauge("dsocr_requests_waiting", "Requests that wait for their turn", registry=registry)
        self.running = Gauge("dsocr_requests_running", "Requests that are being read", registry=registry)
        self.seconds = Histogram(
            "dsocr_request_seconds",
            "From a request's arrival to its end",
            registry=registry,
            buckets=_SECONDS,
        )
        self.first_seconds = Histogram(
            "dsocr_time_to_first_token_seconds", "From a request's arrival to its first text",
            registry=registry, buckets=_SECONDS,
        )  # fmt: skip

    def read(self, result: OcrResult) -> None:
        """A page was read."""
        self._prompt.inc(len(result.inputs.prompt_ids) if result.inputs else 0)
        self._new.inc(result.new_tokens or 0)

    def text(self) -> bytes:
        """The exposition format."""
        return bytes(generate_latest(self._registry))
