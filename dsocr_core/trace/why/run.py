"""Why two backends differ on some pages: every page's facts and cause, and one conclusion."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dsocr_core.engine.device import device_lock
from dsocr_core.page.documents import Page, load_image
from dsocr_core.page.prompt import build_prompt
from dsocr_core.reading.input_parity import compare_inputs
from dsocr_core.reading.parity_records import InputLine
from dsocr_core.reading.records import CancelToken, OcrRequest
from dsocr_core.settings import Settings
from dsocr_core.trace.why.exclude import page_of
from dsocr_core.trace.why.match import SideB
from dsocr_core.trace.why.reader import Reader, Reading
from dsocr_core.trace.why.search import Budget, Finding, Progress, Search


@dataclass(frozen=True)
class PageAnswer:
    """One page: facts of both sides, and the cause."""

    name: str
    other: str
    facts: tuple[InputLine, ...]
    finding: Finding

    def document(self) -> dict[str, Any]:
        """JSON-ready values."""
        finding, cause = self.finding, self.finding.cause
        return {
            "page": self.name, "b": self.other, "conclusion": finding.sentence,
            "explained": cause is not None,
            "causes": [] if cause is None else [*cause.names, *cause.match.free],
            "equally": list(finding.also),
            "facts": [asdict(line) | {"state": line.state} for line in self.facts],
            "a_agrees": {"characters": finding.match.agreed, "of": finding.match.of},
            "trials": [
                {
                    "causes": list(trial.names), "words": trial.words, "exact": trial.match.exact,
                    "agreed_characters": trial.match.agreed, "of": trial.match.of,
                    "character_error_rate": round(trial.match.error_rate, 4),
                    "seconds": round(trial.seconds, 3),
                }
                for trial in finding.trials
            ],
            "excluded": [
                {"cause": each.hypothesis.name, "words": each.hypothesis.words, "why": each.why}
                for each in finding.exclusions
            ],
            "stopped": finding.stopped,
        }  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """Answers for all pages."""

    pages: tuple[PageAnswer, ...]

    @property
    def sentence(self) -> str:
        """Conclusion in one line: the cause of most pages, and how many they are."""
        found = [page.finding for page in self.pages]
        if len(found) == 1:
            return found[0].sentence
        said = Counter("not explained" if each.cause is None else each.sentence for each in found)
        return "; ".join(f"{words} ({count} of {len(found)} pages)" for words, count in said.most_common())

    @property
    def causes(self) -> dict[str, str]:
        """By page, the cause that reproduces B; pages without one are left out."""
        found = {page.name: page.finding for page in self.pages}
        return {name: each.sentence for name, each in found.items() if each.cause and each.cause.words}

    def document(self) -> dict[str, Any]:
        explained = bool(self.pages) and all(page.finding.cause is not None for page in self.pages)
        pages = [page.document() for page in self.pages]
        return {"conclusion": self.sentence, "explained": explained, "pages": pages}


def why(
    settings: Settings,
    pages: Iterable[Page],
    other_of: Callable[[Page], SideB],
    budget: Budget | None = None,
    progress: Progress = lambda words, run, runs: None,
    cancel: CancelToken | None = None,
    on_wait: Callable[[str], None] | None = None,
    reader: Reader | None = None,
) -> Answer:
    """Find the cause on every page, or document of one prompt. `other_of` returns B's reading of it.

    A cause of one page is tried first on the next. The seconds of the budget are for all pages. Raises
    DsocrError and Cancelled.
    """
    reader, budget = reader or Reader(settings), budget or Budget()
    ends, first, answers = time.monotonic() + budget.seconds, list[str](), list[PageAnswer]()
    for page in pages:
        other, attempt = other_of(page), reader.attempt(page)
        for image in attempt.request.images:
            load_image(image, settings.max_pixels)  # raises for a fault before anything is computed
        facts, left = page_of(attempt.request.images), max(1.0, ends - time.monotonic())
        with device_lock(reader.device).hold(f"why on {page.source}", cancel, on_wait):
            limits = Budget(budget.runs, left)
            finding = Search(reader, attempt, other, facts, limits, first, progress, cancel).run()
        if finding.cause is not None:
            first = list(dict.fromkeys([*finding.cause.names, *first]))
        lines = fact_lines(attempt.request, finding.a, other)
        answers.append(PageAnswer(page.source, other.name, lines, finding))
    return Answer(tuple(answers))


_WORDS = {"eos": "end token", "length": "token limit", None: None}


def fact_lines(request: OcrRequest, a: Reading, other: SideB) -> tuple[InputLine, ...]:
    """One line a fact of A's `request` and reading, and of B: equal, differs, or not known where one side
    does not tell."""
    prompt = build_prompt(request.required.prompt, request.template)
    return (
        InputLine("prompt as read", prompt, other.prompt and other.prompt.strip()),
        *compare_inputs(a.inputs, other.inputs),
        InputLine("quantisation", "none", other.quantisation),
        InputLine("stop reason", _WORDS[a.finish], _WORDS[other.finish], decides=False),
    )
