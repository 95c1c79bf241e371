"""The search for the cause on one page: hypotheses one by one, then combined, within a budget."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dsocr_core.models.hypotheses import Hypothesis
from dsocr_core.reading.ngram_rule import same_choices
from dsocr_core.reading.records import CancelToken, NgramPolicy
from dsocr_core.trace.why.exclude import Base, Page, Reason, excluded, same_inputs, unordered
from dsocr_core.trace.why.hypotheses import Attempt, applied, from_facts
from dsocr_core.trace.why.match import Match, Matcher, Other
from dsocr_core.trace.why.reader import Reader, Reading

MOST_COMBINED = 3


@dataclass(frozen=True)
class Budget:
    """Limits of one page: runs of the engine beside A's own, and seconds."""

    runs: int = 60
    seconds: float = 600.0


@dataclass(frozen=True)
class Trial:
    """A combination of hypotheses that was run, or found without a run."""

    chosen: tuple[Hypothesis, ...]
    match: Match
    seconds: float
    prefilled: bool
    """True where vision and prompt had to be computed for it."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.chosen)

    @property
    def words(self) -> str:
        """Its causes, those that need no model last."""
        return " and ".join([*(each.words for each in self.chosen), *self.match.free])


@dataclass(frozen=True)
class Exclusion:
    hypothesis: Hypothesis
    why: str


@dataclass
class Finding:
    """Result of the search on a page. `a` is A's own reading."""

    page: str
    a: Reading
    match: Match
    """Match of A as it is."""
    trials: list[Trial] = field(default_factory=list)
    exclusions: list[Exclusion] = field(default_factory=list)
    cause: Trial | None = None
    """Hypothesis that reproduces B exactly; also A as it is, with no hypothesis."""
    nearest: Trial | None = None
    """Without a cause: what comes nearer to B than A, the nearest."""
    also: tuple[str, ...] = ()
    """Hypotheses that would give the same text as the cause; the page cannot tell them apart."""
    stopped: str | None = None
    """Why the search ended before everything was tried."""

    @property
    def runs(self) -> int:
        return len(self.trials)

    @property
    def sentence(self) -> str:
        """The conclusion in one line."""
        if self.cause is not None:
            if not self.cause.chosen and not self.cause.match.free:
                return "A and B are equal"
            return f"B is reproduced exactly with {self.cause.words}"
        words = "not explained"
        if self.nearest is not None:
            agreed, before = self.nearest.match.agreed, self.match.agreed
            words += (
                f"; nearest with {self.nearest.words}: the first {agreed} of {self.match.of} characters "
                f"agree, {before} without"
            )
        return f"{words} ({self.stopped})" if self.stopped else words


Progress = Callable[[str, int, int], None]
"""Function that hears what is run now, its number, and at most how many runs there are."""


class Search:
    """Looks for the cause on one page. `first` are names of hypotheses that explained other pages."""

    def __init__(
        self,
        reader: Reader,
        attempt: Attempt,
        other: Other,
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
        self._tried: dict[frozenset[str], Trial] = {}
        self._readings: dict[frozenset[str], Reading] = {}
        self._began = time.monotonic()

    def run(self) -> Finding:
        """Raises DsocrError and Cancelled."""
        self._progress("A as it is", 0, self._budget.runs)
        reading = self._reader.read(self._attempt, cancel=self._cancel)
        match = self._matcher.match(reading.text, reading.tokens)
        finding = Finding(self._attempt.request.name, reading, match)
        if match.exact:
            finding.cause = Trial((), match, 0.0, prefilled=True)
            return finding
        base = self._base((), reading, match)
        for chosen in self._combinations(finding, base):
            if (stop := self._spent(finding)) is not None:
                finding.stopped = stop
                break
            trial = self._try(chosen, finding)
            if trial.match.exact:
                finding.cause = trial
                finding.also = self._also(trial)
                return finding
        nearer = [each for each in finding.trials if each.match.closeness > match.closeness]
        finding.nearest = max(nearer, key=lambda each: each.match.closeness, default=None)
        return finding

    # --- what is tried, in which order ------------------------------------------------------------

    def _combinations(self, finding: Finding, base: Base) -> Iterator[tuple[Hypothesis, ...]]:
        """Each hypothesis that is not excluded; all pairs, the most promising first; then a third on top."""
        alone: list[Hypothesis] = []
        idle: list[Hypothesis] = []
        for hypothesis in self._order:
            why = self._excluded(hypothesis, base) or same_inputs(hypothesis, finding.a, self._other)
            if why is None:
                alone.append(hypothesis)
                yield (hypothesis,)
            else:
                finding.exclusions.append(Exclusion(hypothesis, why.words))
                # What does nothing to A may yet do something beside another cause.
                if not why.always:
                    idle.append(hypothesis)
        yield from self._pairs(alone, idle)
        for _ in range(MOST_COMBINED - 2):
            best = max(finding.trials, key=lambda each: each.match.closeness, default=None)
            if best is None or len(best.chosen) < 2:
                return
            yield from self._on_top(best.chosen, alone + idle)

    def _pairs(self, alone: list[Hypothesis], idle: list[Hypothesis]) -> Iterator[tuple[Hypothesis, ...]]:
        """Two causes: those with the nearest single ones first."""
        ranked = sorted(alone, key=lambda each: self._single(each).match.closeness, reverse=True)
        rank = {each.name: number for number, each in enumerate([*ranked, *idle])}
        pairs = itertools.combinations([*ranked, *idle], 2)
        possible = [pair for pair in pairs if pair[0].group != pair[1].group and pair[0] not in idle]
        for pair in sorted(possible, key=lambda pair: sorted(rank[each.name] for each in pair)):
            yield from self._possible(pair)

    def _on_top(
        self, chosen: tuple[Hypothesis, ...], rest: list[Hypothesis]
    ) -> Iterator[tuple[Hypothesis, ...]]:
        groups = {each.group for each in chosen}
        for hypothesis in rest:
            if hypothesis.group not in groups:
                yield from self._possible((*chosen, hypothesis))

    def _possible(self, chosen: tuple[Hypothesis, ...]) -> Iterator[tuple[Hypothesis, ...]]:
        """The combination, unless its last part, a decode rule, can do nothing on top of the others."""
        chosen = tuple(sorted(chosen, key=lambda each: each.group == "ngram"))
        if unordered(chosen) in self._tried:
            return
        below = self._tried.get(unordered(chosen[:-1]))
        if chosen[-1].group == "ngram" and below is not None:
            reading = self._readings[unordered(chosen[:-1])]
            base = self._base(chosen[:-1], reading, below.match)
            if self._excluded(chosen[-1], base) is not None:
                return
        yield chosen

    def _excluded(self, hypothesis: Hypothesis, base: Base) -> Reason | None:
        policy = self._policy(base.attempt.changed(hypothesis.change))
        return excluded(hypothesis, base, self._other, self._page, policy)

    # --- trying -----------------------------------------------------------------------------------

    def _try(self, chosen: tuple[Hypothesis, ...], finding: Finding) -> Trial:
        began, prefills = time.monotonic(), self._reader.prefills
        words = " and ".join(each.words for each in chosen)
        self._progress(words, len(finding.trials) + 1, self._budget.runs)
        attempt = applied(self._attempt, chosen)
        reading = self._reader.read(attempt, self._limit(finding), self._matcher.goes_with, self._cancel)
        match = self._matcher.match(reading.text, reading.tokens, reading.whole)
        trial = Trial(chosen, match, time.monotonic() - began, self._reader.prefills > prefills)
        self._tried[unordered(chosen)] = trial
        self._readings[unordered(chosen)] = reading
        finding.trials.append(trial)
        return trial

    def _limit(self, finding: Finding) -> int:
        """Tokens after which a reading is longer than B for certain."""
        theirs = self._other.tokens or self._reader.encode(self._other.text)
        return max(len(theirs), 0 if "<|ref|>" in self._other.text else len(finding.a.tokens)) * 5 // 4 + 64

    def _spent(self, finding: Finding) -> str | None:
        if len(finding.trials) >= self._budget.runs:
            return f"the budget of {self._budget.runs} runs is spent"
        if time.monotonic() - self._began > self._budget.seconds:
            return f"the budget of {self._budget.seconds:g} s is spent"
        return None

    # --- where readings part ----------------------------------------------------------------------

    def _base(self, chosen: tuple[Hypothesis, ...], reading: Reading, match: Match) -> Base:
        attempt = applied(self._attempt, chosen)
        parted, window = self._parted(reading, match), self._reader.window
        return Base(attempt, reading, parted, self._policy(attempt), window)

    def _parted(self, reading: Reading, match: Match) -> int:
        """The first token in which the reading and B differ; by text where B's tokens are not known."""
        theirs = self._other.tokens
        if theirs is not None:
            pairs = zip(reading.tokens, theirs, strict=False)
            shorter = min(len(reading.tokens), len(theirs))
            return next((step for step, (ours, other) in enumerate(pairs) if ours != other), shorter)
        if match.free:
            return len(reading.tokens)
        low, high = 0, len(reading.tokens)
        while low < high:  # the fewest tokens whose text leaves B's
            middle = (low + high) // 2
            text = self._reader.text(reading.tokens[: middle + 1]).lstrip()
            if self._other.clean.startswith(text.rstrip("\ufffd")):
                low = middle + 1
            else:
                high = middle
        return low

    def _policy(self, attempt: Attempt) -> NgramPolicy:
        return self._reader.policy(attempt)

    def _single(self, hypothesis: Hypothesis) -> Trial:
        return self._tried[unordered((hypothesis,))]

    def _also(self, trial: Trial) -> tuple[str, ...]:
        """Other n-gram rules that choose the same all along, so that this page cannot tell them apart."""
        reading = self._readings[unordered(trial.chosen)]
        ours = next((each for each in trial.chosen if each.group == "ngram"), None)
        if ours is None:
            return ()
        attempt = applied(self._attempt, trial.chosen)
        policy = self._policy(attempt)
        return tuple(
            each.words
            for each in self._order
            if each.group == "ngram"
            and each.name != ours.name
            and same_choices(
                policy, self._policy(attempt.changed(each.change)), reading.tokens, reading.inputs.prompt_ids
            )
        )


def _ordered(attempt: Attempt, other: Other, first: Sequence[str]) -> tuple[Hypothesis, ...]:
    """Order them: what B says of itself, what explained other pages, then the others; each change once."""
    told = from_facts(other.inputs, attempt) if other.inputs is not None else ()
    found: dict[str, Hypothesis] = {}
    for each in sorted(attempt.request.family.hypotheses, key=lambda each: each.name not in first):
        found[each.name] = each
    rest = [each for each in found.values() if all(dict(each.change) != dict(one.change) for one in told)]
    return (*told, *rest)
