"""Search for the cause on one page: single hypotheses, then pairs, within a budget."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dsocr_core.engine.ngram_rule import same_choices
from dsocr_core.models.hypotheses import Hypothesis, hypotheses_of, ngram_hypothesis
from dsocr_core.reading.records import CancelToken
from dsocr_core.trace.why.attempt import Attempt
from dsocr_core.trace.why.exclude import Base, Exclusion, Page, excluded
from dsocr_core.trace.why.match import Match, Matcher, SideB
from dsocr_core.trace.why.reader import Reader, Reading

Chosen = tuple[Hypothesis, ...]
Progress = Callable[[str, int, int], None]
"""Callback with what is run now, its number, and the most runs there may be."""


@dataclass(frozen=True)
class Budget:
    """Limits for one page: runs of the engine besides A's own, and seconds."""

    runs: int = 60
    seconds: float = 600.0


@dataclass(frozen=True)
class Trial:
    """A combination of hypotheses that was tried."""

    chosen: Chosen
    match: Match
    reading: Reading
    seconds: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.chosen)

    @property
    def words(self) -> str:
        """Causes in words; those that need no model come last."""
        return " and ".join([*(each.words for each in self.chosen), *self.match.free])


@dataclass
class Finding:
    """Result of the search on a page. `a` is A's own reading, `match` compares it with B."""

    a: Reading
    match: Match
    trials: list[Trial] = field(default_factory=list)
    exclusions: list[Exclusion] = field(default_factory=list)
    cause: Trial | None = None
    """Trial that reproduces B exactly; it may be A itself, without hypothesis."""
    also: tuple[str, ...] = ()
    """Hypotheses that would give the same text, so that the page cannot tell them apart."""
    stopped: str | None = None
    """Why the search ended early; None where everything was tried."""

    @property
    def sentence(self) -> str:
        """Conclusion in one line. Without a cause it names the trial nearest to B, if nearer than A."""
        if self.cause is not None:
            words = self.cause.words
            return f"B is reproduced exactly with {words}" if words else "A and B are equal"
        words = "not explained"
        nearest = max(self.trials, key=lambda each: each.match.closeness, default=None)
        if nearest is not None and nearest.match.closeness > self.match.closeness:
            words += (
                f"; nearest with {nearest.words}: the first {nearest.match.agreed} of {self.match.of} "
                f"characters agree, {self.match.agreed} without"
            )
        return f"{words} ({self.stopped})" if self.stopped else words


class Search:
    """Search for the cause on one page. `first` are hypotheses that explained other pages."""

    def __init__(
        self,
        reader: Reader,
        attempt: Attempt,
        other: SideB,
        page: Page,
        budget: Budget | None = None,
        first: Sequence[str] = (),
        progress: Progress = lambda words, run, runs: None,
        cancel: CancelToken | None = None,
    ) -> None:
        self._reader, self._attempt, self._other, self._page = reader, attempt, other, page
        self._budget, self._progress, self._cancel = budget or Budget(), progress, cancel
        self._matcher = Matcher(other, reader.special_texts)
        self._order = _ordered(attempt, other, first)
        self._trials: dict[frozenset[str], Trial] = {}
        self._began = time.monotonic()

    def run(self) -> Finding:
        """Run the search. Raises DsocrError and Cancelled."""
        self._progress("A as it is", 0, self._budget.runs)
        reading = self._reader.read(self._attempt, cancel=self._cancel)
        match = self._matcher.match(reading.text, reading.tokens)
        finding = Finding(reading, match)
        as_it_is = self._trials[frozenset()] = Trial((), match, reading)
        if match.exact:
            finding.cause = as_it_is
            return finding
        for chosen in self._combinations(finding):
            finding.stopped = self._spent(len(finding.trials))
            if finding.stopped:
                break
            trial = self._try(chosen, finding)
            if trial.match.exact:
                finding.cause, finding.also = trial, self._also(trial)
                break
        return finding

    def _combinations(self, finding: Finding) -> Iterator[Chosen]:
        """Yield each hypothesis that is not excluded, then all pairs, the most promising first."""
        alone: list[Hypothesis] = []
        idle: list[Hypothesis] = []
        for hypothesis in self._order:
            if (exclusion := self._excluded(hypothesis, ())) is None:
                alone.append(hypothesis)
                yield (hypothesis,)
                continue
            finding.exclusions.append(exclusion)
            # What does not change A may still matter together with another cause.
            if not exclusion.always:
                idle.append(hypothesis)
        alone.sort(key=lambda each: self._trials[frozenset({each.name})].match.closeness, reverse=True)
        for one, other in itertools.combinations([*alone, *idle], 2):
            # The n-gram rule comes last: it is tried on the other's reading.
            below, above = sorted((one, other), key=lambda each: each.group == "ngram")
            if one in idle or below.group == above.group:
                continue
            decodes = above.group == "ngram" and frozenset({below.name}) in self._trials
            if not decodes or self._excluded(above, (below,)) is None:
                yield below, above

    def _excluded(self, hypothesis: Hypothesis, below: Chosen) -> Exclusion | None:
        """Why a hypothesis cannot matter together with those of an earlier trial; None where it may."""
        trial, attempt = self._trials[_key(below)], self._attempt.under(below)
        base = Base(attempt, trial.reading, self._diverged(trial), self._reader.policy(attempt))
        policy = self._reader.policy(attempt.changed(hypothesis.change))
        return excluded(hypothesis, base, self._other, self._page, policy)

    def _try(self, chosen: Chosen, finding: Finding) -> Trial:
        began, words = time.monotonic(), " and ".join(each.words for each in chosen)
        self._progress(words, len(finding.trials) + 1, self._budget.runs)
        # After that many tokens a reading is certainly longer than B.
        theirs = self._other.tokens or self._reader.encode(self._other.text)
        ours = 0 if "<|ref|>" in self._other.text else len(finding.a.tokens)
        limit = max(len(theirs), ours) * 5 // 4 + 64
        reading = self._reader.read(self._attempt.under(chosen), limit, self._matcher.goes_with, self._cancel)
        match = self._matcher.match(reading.text, reading.tokens, reading.whole)
        trial = self._trials[_key(chosen)] = Trial(chosen, match, reading, time.monotonic() - began)
        finding.trials.append(trial)
        return trial

    def _spent(self, runs: int) -> str | None:
        if runs >= self._budget.runs:
            return f"the budget of {self._budget.runs} runs is spent"
        if time.monotonic() - self._began > self._budget.seconds:
            return f"the budget of {self._budget.seconds:g} s is spent"
        return None

    def _diverged(self, trial: Trial) -> int:
        """First token in which a reading and B differ; by text where B's tokens are not known."""
        ours, theirs = trial.reading.tokens, self._other.tokens
        if theirs is not None:
            pairs = zip(ours, theirs, strict=False)
            differing = (step for step, (one, other) in enumerate(pairs) if one != other)
            return next(differing, min(len(ours), len(theirs)))
        if trial.match.free:
            return len(ours)
        low, high = 0, len(ours)
        while low < high:  # the fewest tokens whose text differs from B's
            middle = (low + high) // 2
            text = self._reader.text(ours[: middle + 1]).lstrip()
            if self._other.clean_text.startswith(text.rstrip("\ufffd")):
                low = middle + 1
            else:
                high = middle
        return low

    def _also(self, trial: Trial) -> tuple[str, ...]:
        """Other n-gram rules that choose the same tokens on this page."""
        if not any(each.group == "ngram" for each in trial.chosen):
            return ()
        attempt, reading = self._attempt.under(trial.chosen), trial.reading
        policy, prompt = self._reader.policy(attempt), reading.inputs.prompt_ids
        rules = [each for each in self._order if each.group == "ngram" and each not in trial.chosen]
        policies = {each.words: self._reader.policy(attempt.changed(each.change)) for each in rules}
        return tuple(
            words for words, rule in policies.items() if same_choices(policy, rule, reading.tokens, prompt)
        )


def _key(chosen: Chosen) -> frozenset[str]:
    return frozenset(each.name for each in chosen)


def _ordered(attempt: Attempt, other: SideB, first: Sequence[str]) -> Chosen:
    """Order: B's recorded settings, what explained other pages, the others; each change once."""
    recorded, inputs, request = list[Hypothesis](), other.inputs, attempt.request
    if inputs is not None:
        theirs = (inputs.no_repeat_ngram_size, inputs.ngram_window, inputs.ngram_whitelist)
        if theirs != (request.no_repeat_ngram_size, request.ngram_window, request.ngram_whitelist):
            recorded.append(ngram_hypothesis(*theirs))
        if inputs.dtype != attempt.dtype and inputs.dtype in ("bfloat16", "float16", "float32"):
            name, change = f"dtype-{inputs.dtype}", {"dtype": inputs.dtype}
            recorded.append(Hypothesis(name, inputs.dtype, "dtype", change))
    known = [dict(each.change) for each in recorded]
    own = sorted(hypotheses_of(request.model), key=lambda each: each.name not in first)
    return (*recorded, *(each for each in own if dict(each.change) not in known))
