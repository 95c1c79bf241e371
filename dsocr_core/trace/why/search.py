"""The search for the cause on one page: hypotheses one by one, then pairs of them, within a budget."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dsocr_core.models.spec import Hypothesis
from dsocr_core.reading.ngram_rule import same_choices
from dsocr_core.reading.records import CancelToken
from dsocr_core.trace.why.attempt import Attempt, recorded_hypotheses
from dsocr_core.trace.why.exclude import Base, Page, Reason, excluded
from dsocr_core.trace.why.match import Match, Matcher, Other
from dsocr_core.trace.why.reader import Reader, Reading

Chosen = tuple[Hypothesis, ...]


@dataclass(frozen=True)
class Budget:
    """Limits of one page: runs of the engine beside A's own, and seconds."""

    runs: int = 60
    seconds: float = 600.0


@dataclass(frozen=True)
class Trial:
    """A combination of hypotheses that was run, or found without a run."""

    chosen: Chosen
    match: Match
    reading: Reading
    seconds: float = 0.0
    prefilled: bool = True
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
    """A hypothesis that was not run, and why."""

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
            words = self.cause.words
            return f"B is reproduced exactly with {words}" if words else "A and B are equal"
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
        self._trials: dict[frozenset[str], Trial] = {}
        self._began = time.monotonic()

    def run(self) -> Finding:
        """Raises DsocrError and Cancelled."""
        self._progress("A as it is", 0, self._budget.runs)
        reading = self._reader.read(self._attempt, cancel=self._cancel)
        match = self._matcher.match(reading.text, reading.tokens)
        finding = Finding(self._attempt.request.name, reading, match)
        as_it_is = self._trials[frozenset()] = Trial((), match, reading)
        if match.exact:
            finding.cause = as_it_is
            return finding
        for chosen in self._combinations(finding):
            if (stop := self._spent(finding)) is not None:
                finding.stopped = stop
                break
            trial = self._try(chosen, finding)
            if trial.match.exact:
                finding.cause, finding.also = trial, self._also(trial)
                return finding
        nearer = [each for each in finding.trials if each.match.closeness > match.closeness]
        finding.nearest = max(nearer, key=lambda each: each.match.closeness, default=None)
        return finding

    # --- what is tried, in which order ------------------------------------------------------------

    def _combinations(self, finding: Finding) -> Iterator[Chosen]:
        """Each hypothesis that is not excluded, then all pairs, the most promising first."""
        alone: list[Hypothesis] = []
        idle: list[Hypothesis] = []
        for hypothesis in self._order:
            why = self._excluded(hypothesis, ())
            if why is None:
                alone.append(hypothesis)
                yield (hypothesis,)
                continue
            finding.exclusions.append(Exclusion(hypothesis, why.words))
            # What does nothing to A may yet do something together with another cause.
            if not why.always:
                idle.append(hypothesis)
        alone.sort(key=lambda each: self._trials[frozenset({each.name})].match.closeness, reverse=True)
        ranked = [*enumerate(alone), *enumerate(idle, len(alone))]
        pairs = sorted(itertools.combinations(ranked, 2), key=lambda pair: (pair[0][0], pair[1][0]))
        for (rank, one), (_, other) in pairs:
            # The decode rule last: it is tried on what the other has read.
            below, above = sorted((one, other), key=lambda each: each.group == "ngram")
            if rank >= len(alone) or below.group == above.group:
                continue
            decodes = above.group == "ngram" and frozenset({below.name}) in self._trials
            if not decodes or self._excluded(above, (below,)) is None:
                yield below, above

    def _excluded(self, hypothesis: Hypothesis, below: Chosen) -> Reason | None:
        """Why a hypothesis can do nothing on top of others, which were tried."""
        trial = self._trials[_key(below)]
        attempt = self._attempt.under(below)
        base = Base(attempt, trial.reading, self._diverged(trial), self._reader.policy(attempt))
        policy = self._reader.policy(attempt.changed(hypothesis.change))
        return excluded(hypothesis, base, self._other, self._page, policy)

    # --- trying -----------------------------------------------------------------------------------

    def _try(self, chosen: Chosen, finding: Finding) -> Trial:
        began, prefills = time.monotonic(), self._reader.prefills
        words = " and ".join(each.words for each in chosen)
        self._progress(words, len(finding.trials) + 1, self._budget.runs)
        reading = self._reader.read(
            self._attempt.under(chosen), self._limit(finding), self._matcher.goes_with, self._cancel
        )
        match = self._matcher.match(reading.text, reading.tokens, reading.whole)
        seconds, prefilled = time.monotonic() - began, self._reader.prefills > prefills
        trial = self._trials[_key(chosen)] = Trial(chosen, match, reading, seconds, prefilled)
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

    def _diverged(self, trial: Trial) -> int:
        """The first token in which the reading and B differ; by text where B's tokens are not known."""
        ours, theirs = trial.reading.tokens, self._other.tokens
        if theirs is not None:
            pairs = zip(ours, theirs, strict=False)
            return next(
                (step for step, (one, other) in enumerate(pairs) if one != other), min(len(ours), len(theirs))
            )
        if trial.match.free:
            return len(ours)
        low, high = 0, len(ours)
        while low < high:  # the fewest tokens whose text leaves B's
            middle = (low + high) // 2
            text = self._reader.text(ours[: middle + 1]).lstrip()
            if self._other.clean.startswith(text.rstrip("\ufffd")):
                low = middle + 1
            else:
                high = middle
        return low

    def _also(self, trial: Trial) -> tuple[str, ...]:
        """Other n-gram rules that choose the same all along, so that this page cannot tell them apart."""
        ours = next((each for each in trial.chosen if each.group == "ngram"), None)
        if ours is None:
            return ()
        attempt, reading = self._attempt.under(trial.chosen), trial.reading
        policy = self._reader.policy(attempt)
        rules = [each for each in self._order if each.group == "ngram" and each.name != ours.name]
        policies = {each.words: self._reader.policy(attempt.changed(each.change)) for each in rules}
        return tuple(
            words
            for words, other in policies.items()
            if same_choices(policy, other, reading.tokens, reading.inputs.prompt_ids)
        )


def _key(chosen: Chosen) -> frozenset[str]:
    return frozenset(each.name for each in chosen)


def _ordered(attempt: Attempt, other: Other, first: Sequence[str]) -> tuple[Hypothesis, ...]:
    """Order them: what B has recorded, what explained other pages, then the others; each change once."""
    recorded = recorded_hypotheses(other.inputs, attempt) if other.inputs is not None else ()
    known = [dict(each.change) for each in recorded]
    own = sorted(attempt.request.family.hypotheses, key=lambda each: each.name not in first)
    return (*recorded, *(each for each in own if dict(each.change) not in known))
