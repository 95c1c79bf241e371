"""Figures that other programs report of a run: benches of servers, and OmniDocBench's own evaluation.

`vllm bench serve --save-result`, `sglang.bench_serving` (a line a run), `llama-bench -o json | jsonl | csv`,
`llmperf`'s summary; `*_metric_result.json` of OmniDocBench. Times are in ms, rates a second; what a file does
not say has no row.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dsocr_core.base.untrusted import Refused, parse_value, read_bytes
from dsocr_core.runs.importers.imported import ImportedRun, Row, content_id
from dsocr_core.runs.importers.reading import FILE_TIME_NOTE, Head, as_text, clean, digest, file_time
from dsocr_core.runs.record import RunRecord, Source

FILE_LIMIT = 64 * 1024 * 1024
"""Bytes: detailed results hold every request."""
RUN_LIMIT, ROW_LIMIT = 2_000, 20_000
_LIMIT = 1e18
_FIGURES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e", "e2e_latency": "e2e"}
_OF_SERVER = re.compile(r"(mean|median|std|min|max|p\d{1,2}(?:\.\d+)?)_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_PLAIN = {
    "request_throughput": ("requests", "rate", "requests/s"),
    "request_goodput": ("goodput", "rate", "requests/s"),
    "output_throughput": ("output", "rate", "tokens/s"),
    "input_throughput": ("input", "rate", "tokens/s"),
    "total_token_throughput": ("input and output", "rate", "tokens/s"),
    "total_throughput": ("input and output", "rate", "tokens/s"),
    "total_input_tokens": ("input", "total", "tokens"),
    "total_output_tokens": ("output", "total", "tokens"),
    "completed": ("completed", "total", "requests"),
    "failed": ("failed", "total", "requests"),
    "duration": ("duration", "total", "s"),
    "max_concurrency": ("concurrency", "limit", "requests"),
    "concurrency": ("concurrency", "mean", "requests"),
    "max_concurrent_requests": ("concurrency", "max", "requests"),
    "request_rate": ("asked", "rate", "requests/s"),
}
_MARK = re.compile(
    r'"(?:request_throughput|n_prompt|results_ttft_s_quantiles_p50)"\s*:|'
    r'"(?:text_block|display_formula|table|reading_order)"\s*:\s*\{\s*"all"\s*:'
)
"""A key of each: detailed results hold some of theirs after a list of every request."""
_LLMPERF = re.compile(
    r"results_(ttft_s|inter_token_latency_s|end_to_end_latency_s|request_output_throughput_token_per_s)"
    r"_(?:quantiles_)?(p\d{1,2}|mean|min|max|stddev)"
)
_OF_LLMPERF = {
    "ttft_s": ("ttft", 1e3, "ms"), "inter_token_latency_s": ("itl", 1e3, "ms"),
    "end_to_end_latency_s": ("e2e", 1e3, "ms"),
    "request_output_throughput_token_per_s": ("output of a request", 1.0, "tokens/s"),
}  # fmt: skip
_PLAIN_LLMPERF = {
    "results_mean_output_throughput_token_per_s": ("output", "rate", "tokens/s"),
    "results_num_completed_requests": ("completed", "total", "requests"),
    "results_number_errors": ("failed", "total", "requests"),
    "num_concurrent_requests": ("concurrency", "limit", "requests"),
    "mean_input_tokens": ("input", "mean", "tokens"),
    "mean_output_tokens": ("output", "mean", "tokens"),
}


@dataclass(frozen=True)
class Form:
    """A kind of result: what it is called, how a document of it is known, and how its figures are read."""

    name: str
    source: Source
    keys: frozenset[str]
    rows: Callable[[Mapping[str, Any]], Iterable[Row]]


def may_be_results(head: Head) -> bool:
    """Tell whether a file begins as a document of such results; which they are is seen when it is read."""
    if head.text.lstrip().startswith(("{", "[")):
        return _MARK.search(head.text) is not None
    return _is_llama_csv(head.lines[0]) if head.lines else False


def read_results(file: Path) -> list[ImportedRun]:
    """The results in a file, a run each. Raises Refused."""
    text = as_text(read_bytes(file, FILE_LIMIT))
    runs: dict[str, ImportedRun] = {}
    for form, documents in _grouped(_documents(text)):
        rows = [row for document in documents for row in form.rows(document)]
        if not rows:
            raise Refused(f"a result of {form.name} without figures")
        if len(rows) > ROW_LIMIT:
            raise Refused(f"more than {ROW_LIMIT:,} figures")
        about = documents[0]
        created = _time_of(about)
        said = digest(json.dumps(documents, sort_keys=True).encode())
        model = about.get("model_id") or about.get("model_type") or about.get("model")
        notes = [f"{form.name} in {clean(file.name)[:200]}."]
        notes += [f"Model {clean(model)[:200]}."] if isinstance(model, str) else []
        notes += [] if created else [FILE_TIME_NOTE]
        gpu = about.get("gpu_info")
        record = RunRecord(
            id=content_id(form.source, {form.name: said}),
            created=created or file_time(file),
            source=form.source,
            engine=form.name,
            gpu=clean(gpu)[:200] if isinstance(gpu, str) and gpu else None,
            git_commit=None,
            notes=" ".join(notes),
        )
        runs[record.id] = ImportedRun(record, file, {"reported": tuple(rows)})
    return list(runs.values())


def _documents(text: str) -> Iterator[Mapping[str, Any]]:
    """Each object of a JSON document, of lines of JSON, or of llama-bench's CSV. Raises Refused."""
    first = text.partition("\n")[0]
    if _is_llama_csv(first):
        try:
            yield from csv.DictReader(io.StringIO(text, newline=""), strict=True)
        except csv.Error as error:
            raise Refused(f"not whole: {error}") from error
        return
    try:
        whole = parse_value(text, any_number=True)
        values = whole if isinstance(whole, list) else [whole]
    except Refused:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) < 2 or len(lines) > RUN_LIMIT:
            raise
        values = [parse_value(line, any_number=True) for line in lines]
    for value in values:
        if not isinstance(value, dict):
            raise Refused("not a list of results")
        yield value


def _grouped(documents: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Form, list[Mapping[str, Any]]]]:
    """Documents with their form: each by itself, but the tests of one llama-bench together."""
    together: list[Mapping[str, Any]] = []
    for number, document in enumerate(documents):
        form = next((form for form in FORMS if form.keys <= document.keys()), None)
        if form is None:
            raise Refused("a result of no bench that is read")
        if number >= RUN_LIMIT:
            raise Refused(f"more than {RUN_LIMIT:,} results")
        if form is LLAMA:
            together.append(document)
        else:
            yield form, [document]
    if together:
        yield LLAMA, together


def _row(
    subject: str, figure: str, statistic: str, value: Any, unit: str | None, factor: float = 1.0
) -> Iterator[Row]:
    """A figure, unless it is none."""
    try:
        number = float(value) * factor
    except (TypeError, ValueError, OverflowError):
        return
    if 0 <= number <= _LIMIT and not isinstance(value, bool):
        yield {
            "subject": clean(subject)[:200], "figure": clean(figure)[:200],
            "statistic": clean(statistic)[:200],
            "value": number, "unit": unit,
        }  # fmt: skip


def _server(document: Mapping[str, Any]) -> Iterator[Row]:
    for key, value in document.items():
        if key in _PLAIN:
            figure, statistic, unit = _PLAIN[key]
            yield from _row("serving", figure, statistic, value, unit)
        elif match := _OF_SERVER.fullmatch(key):
            yield from _row("serving", _FIGURES[match[2]], match[1], value, "ms")


def _llmperf(document: Mapping[str, Any]) -> Iterator[Row]:
    for key, value in document.items():
        if key in _PLAIN_LLMPERF:
            figure, statistic, unit = _PLAIN_LLMPERF[key]
            yield from _row("serving", figure, statistic, value, unit)
        elif match := _LLMPERF.fullmatch(key):
            figure, factor, unit = _OF_LLMPERF[match[1]]
            statistic = "std" if match[2] == "stddev" else match[2]
            yield from _row("serving", figure, statistic, value, unit, factor)


def _llama(document: Mapping[str, Any]) -> Iterator[Row]:
    prompt, new, depth = (str(document.get(key) or 0) for key in ("n_prompt", "n_gen", "n_depth"))
    parts = [f"pp{prompt}" if prompt != "0" else "", f"tg{new}" if new != "0" else ""]
    subject = "+".join(filter(None, parts)) + (f" @ d{depth}" if depth != "0" else "")
    for key, figure, statistic, unit, factor in (
        ("avg_ts", "tokens", "mean", "tokens/s", 1.0), ("stddev_ts", "tokens", "std", "tokens/s", 1.0),
        ("avg_ns", "time", "mean", "ms", 1e-6), ("stddev_ns", "time", "std", "ms", 1e-6),
    ):  # fmt: skip
        yield from _row(subject, figure, statistic, document.get(key), unit, factor)


def _evaluation(document: Mapping[str, Any]) -> Iterator[Row]:
    """Figures by element (text_block, table ...), each in all and by what pages are."""
    for element, of in document.items():
        for scope, metrics in of.items() if isinstance(of, dict) else ():
            for metric, values in metrics.items() if isinstance(metrics, dict) else ():
                for group, value in values.items() if isinstance(values, dict) else ():
                    if scope in ("all", "group", "page") and metric != "sample_count":
                        yield from _row(
                            element, metric, group if scope == "all" else f"{scope}: {group}", value, None
                        )


LLAMA = Form("llama-bench", "serving", frozenset({"n_prompt", "n_gen", "avg_ts"}), _llama)
FORMS = (
    Form(
        "sglang.bench_serving", "serving", frozenset({"request_throughput", "mean_e2e_latency_ms"}), _server
    ),
    Form("vllm bench serve", "serving", frozenset({"request_throughput", "mean_ttft_ms"}), _server),
    LLAMA,
    Form("llmperf", "serving", frozenset({"results_ttft_s_quantiles_p50"}), _llmperf),
    *(
        Form("OmniDocBench", "omnidocbench", frozenset({element}), _evaluation)
        for element in ("text_block", "display_formula", "table", "reading_order")
    ),
)


def _is_llama_csv(line: str) -> bool:
    return {"n_prompt", "n_gen", "avg_ts"} <= {cell.strip().strip('"') for cell in line.split(",")}


def _time_of(document: Mapping[str, Any]) -> str | None:
    """Read when a result says that it was made; one without a zone is taken as UTC."""
    for key, form in (("date", "%Y%m%d-%H%M%S"), ("test_time", None), ("timestamp", None)):
        value = document.get(key)
        try:
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
            if isinstance(value, str):
                moment = datetime.strptime(value, form) if form else datetime.fromisoformat(value)
                moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                return moment.astimezone(UTC).isoformat(timespec="seconds")
        except (ValueError, OverflowError, OSError):
            continue
    return None
