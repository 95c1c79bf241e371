"""Figures of merit of what the model wrote, and the table of them.

Box F1 counts a box as found when an unmatched reference box of the same label overlaps it with IoU >= 0.75.
Label accuracy: of the boxes found whatever their label, the share whose label is right.
The character error rate is Levenshtein distance over reference length, the markup of blocks left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field

from rapidfuzz.distance import Levenshtein

from data.mini.training.markup import Prompt, parse_markup
from dsocr_core.reading.scores import MATCH_IOU, Labelled, iou
from dsocr_core.reading.scores import matched as matched_places

__all__ = ["MATCH_IOU", "Score", "Scores", "iou", "matched", "score_page"]

Figures = dict[str, int | float | None]
COLUMNS = {
    "pages": "pages",
    "box_f1": f"box F1@{MATCH_IOU}",
    "label_accuracy": "label accuracy",
    "cer_grounding": "CER grounding",
    "cer_free_ocr": "CER free OCR",
    "ended": "ends with EOS",
}


def matched(
    reference: Sequence[Labelled], written: Sequence[Labelled], same_label: bool
) -> list[tuple[Labelled, Labelled]]:
    """Pairs one to one of boxes that overlap enough: each reference box in reading order takes its best."""
    return [(reference[a], written[b]) for a, b in matched_places(reference, written, same_label)]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True)
class Score:
    """Counts that add up over pages; a rate is None where there was nothing to count.

    `boxes` counts reference and written ones, `found` pairs of one label, `placed` pairs whatever their
    labels, `labelled` those of them whose labels agree.
    """

    pages: int = 0
    ended: int = 0
    errors: int = 0
    characters: int = 0
    boxes: int = 0
    found: int = 0
    placed: int = 0
    labelled: int = 0

    def __add__(self, other: "Score") -> "Score":
        return Score(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def box_f1(self) -> float | None:
        return _share(2 * self.found, self.boxes)

    @property
    def label_accuracy(self) -> float | None:
        return _share(self.labelled, self.placed)

    @property
    def character_error_rate(self) -> float | None:
        return _share(self.errors, self.characters)

    @property
    def ended_share(self) -> float | None:
        return _share(self.ended, self.pages)


def score_page(prompt: Prompt, reference: str, written: str, ended: bool) -> Score:
    """Score what the model wrote for a page against the true answer; `ended` when the end token came."""
    if prompt is Prompt.FREE_OCR:
        text = written.strip()
        return Score(1, int(ended), Levenshtein.distance(reference, text), len(reference))
    true_boxes, true_text = parse_markup(reference)
    boxes, text = parse_markup(written)
    placed = matched(true_boxes, boxes, same_label=False)
    return Score(
        pages=1,
        ended=int(ended),
        errors=Levenshtein.distance(true_text, text),
        characters=len(true_text),
        boxes=len(true_boxes) + len(boxes),
        found=len(matched(true_boxes, boxes, same_label=True)),
        placed=len(placed),
        labelled=sum(a[0] == b[0] for a, b in placed),
    )


@dataclass
class Scores:
    """Scores by preset, part of it (a grid of crops or a sample page; "" where there is none) and prompt."""

    by_part: dict[tuple[str, str], dict[Prompt, Score]] = field(default_factory=dict)

    def add(self, preset: str, part: str, prompt: Prompt, score: Score) -> None:
        prompts = self.by_part.setdefault((preset, part), {})
        prompts[prompt] = prompts.get(prompt, Score()) + score

    def total(self, preset: str, prompt: Prompt) -> Score:
        """All parts of a preset together; zero where nothing was scored."""
        scores = (by.get(prompt, Score()) for (name, _), by in self.by_part.items() if name == preset)
        return sum(scores, Score())

    def presets(self) -> list[str]:
        return list(dict.fromkeys(preset for preset, _ in self.by_part))

    def parts(self, preset: str) -> list[str]:
        return sorted(part for name, part in self.by_part if name == preset and part)

    def figures(self, preset: str, part: str | None = None) -> Figures:
        """The figures of a preset, or of one part of it; `ended` is that of the worse prompt."""
        if part is None:
            scores = {prompt: self.total(preset, prompt) for prompt in Prompt}
        else:
            scores = {prompt: self.by_part[preset, part].get(prompt, Score()) for prompt in Prompt}
        grounding, free_ocr = scores[Prompt.GROUNDING], scores[Prompt.FREE_OCR]
        ended = [each.ended_share for each in scores.values() if each.ended_share is not None]
        return {
            "pages": max(grounding.pages, free_ocr.pages),
            "box_f1": grounding.box_f1,
            "label_accuracy": grounding.label_accuracy,
            "cer_grounding": grounding.character_error_rate,
            "cer_free_ocr": free_ocr.character_error_rate,
            "ended": min(ended, default=None),
        }

    def _rows(self) -> Iterator[tuple[str, Figures]]:
        for preset in self.presets():
            yield preset, self.figures(preset)
            for part in self.parts(preset):
                yield f"  {part}", self.figures(preset, part)

    def table(self) -> str:
        """A line a preset and an indented line for each of its parts."""
        rows = list(self._rows())
        first = max(len("preset"), *(len(name) for name, _ in rows)) if rows else len("preset")
        lines = ["  ".join([f"{'preset':{first}}", *COLUMNS.values()])]
        for name, figures in rows:
            cells = [f"{_cell(figures[key]):>{len(title)}}" for key, title in COLUMNS.items()]
            lines.append("  ".join([f"{name:{first}}", *cells]))
        return "\n".join(lines)

    def as_json(self) -> dict[str, dict[str, object]]:
        """The table by preset, its parts under `parts`."""
        tree: dict[str, dict[str, object]] = {}
        for preset in self.presets():
            tree[preset] = dict(self.figures(preset))
            if parts := self.parts(preset):
                tree[preset]["parts"] = {part: self.figures(preset, part) for part in parts}
        return tree


def _cell(value: int | float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4f}"
