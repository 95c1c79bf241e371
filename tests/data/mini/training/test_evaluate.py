"""Scores against hand-computed values, decoding against a plain search, held-out pages against themselves."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

pytest.importorskip("matplotlib", reason="held-out pages are drawn with the fonts that matplotlib bundles")

from data.mini.training import evaluate as evaluation
from data.mini.training import held_out
from data.mini.training.__main__ import PRESET_NAMES, PROMPT_NAMES
from data.mini.training.answer_loss import AnswerLoss
from data.mini.training.data import prompt_ids, token_id
from data.mini.training.decoder import LayerCache
from data.mini.training.evaluate import (
    FixedCache,
    NgramRule,
    evaluate,
    evaluate_samples,
    greedy,
    look,
    sample_mode,
)
from data.mini.training.held_out import Shown, batches, held_out_page, in_processes, write_held_out
from data.mini.training.markup import Prompt
from data.mini.training.model import TrainingModel
from data.mini.training.scores import Score, Scores, iou, matched, score_page
from data.mini.training.tokenizer import EOS, IMAGE
from data.mini.training.views import BASE, GUNDAM, PRESETS, SMALL, Mode
from tests.support.training_model import tiny_size

SIZE = tiny_size(layers=2, vocabulary=1408)


@pytest.fixture
def model() -> TrainingModel:
    """Random; it writes one of twelve tokens, now and then the end token, and looks at the whole sequence."""
    torch.manual_seed(0)
    model = TrainingModel(SIZE, AnswerLoss(1408, padding=2)).eval()
    model.set_rotary(rounded=False)
    with torch.no_grad():
        model.lm_head.weight[12:] = 0
        model.lm_head.weight[:12] *= 20
        model.lm_head.weight[token_id(EOS)] *= 0.3
        for name, weight in model.named_parameters():
            if name.endswith("o_proj.weight"):
                weight.mul_(10)
    return model


def block(label: str, box: str, text: str) -> str:
    return f"<|ref|>{label}<|/ref|><|det|>[[{box}]]<|/det|>\n{text}"


def test_overlap_is_intersection_over_union() -> None:
    assert iou((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert iou((0, 0, 10, 10), (10, 0, 20, 10)) == 0
    assert iou((0, 0, 10, 10), (2, 2, 8, 8)) == pytest.approx(0.36)


def test_boxes_pair_one_to_one() -> None:
    boxes = [("text", (0, 0, 100, 100)), ("text", (0, 200, 100, 300))]
    assert matched(boxes, boxes[::-1], same_label=True) == [(boxes[0], boxes[0]), (boxes[1], boxes[1])]
    assert matched([boxes[0]] * 2, [boxes[0]], same_label=False) == [(boxes[0], boxes[0])]
    titled = ("title", (0, 0, 100, 100))
    assert matched(boxes, [titled], same_label=True) == []
    assert matched(boxes, [titled], same_label=False) == [(boxes[0], titled)]
    # 75 of 100 columns overlap: just enough; 74 are not.
    assert len(matched(boxes[:1], [("text", (0, 0, 75, 100))], same_label=True)) == 1
    assert matched(boxes[:1], [("text", (0, 0, 74, 100))], same_label=True) == []


def test_score_of_a_grounded_page() -> None:
    reference = "\n\n".join(
        (
            block("title", "0, 0, 100, 50", "# abcd"),
            block("text", "0, 100, 100, 200", "efgh"),
            block("image", "0, 300, 100, 400", "").rstrip("\n"),
        )
    )
    # A label wrong, a letter wrong, the picture missing, a box too many.
    written = "\n\n".join(
        (
            block("text", "0, 0, 100, 50", "# abcd"),
            block("text", "0, 100, 100, 200", "exgh"),
            block("text", "500, 500, 600, 600", ""),
        )
    )
    score = score_page(Prompt.GROUNDING, reference, written, ended=True)
    assert score == Score(
        pages=1, ended=1, errors=1, characters=12, boxes=6, found=1, placed=2, labelled=1
    )  # "# abcd", an empty line, "efgh": 6 + 2 + 4 characters
    assert score.box_f1 == pytest.approx(2 * 1 / 6)
    assert score.label_accuracy == 0.5
    assert score.character_error_rate == pytest.approx(1 / 12)


def test_score_of_a_plain_page() -> None:
    score = score_page(Prompt.FREE_OCR, "kitten", "sitting", ended=False)
    assert score == Score(pages=1, ended=0, errors=3, characters=6)
    assert (score.box_f1, score.label_accuracy, score.ended_share) == (None, None, 0.0)


def example_scores() -> Scores:
    scores = Scores()
    grounding, free_ocr = Prompt.GROUNDING, Prompt.FREE_OCR
    scores.add("small", "", grounding, Score(2, 2, 1, 8, boxes=8, found=4, placed=4, labelled=3))
    scores.add("gundam", "2x3", grounding, Score(1, 1, 3, 10, boxes=4, found=1, placed=2, labelled=1))
    scores.add("gundam", "1x2", grounding, Score(1, 1, 1, 30, boxes=6, found=3, placed=3, labelled=3))
    scores.add("gundam", "1x2", free_ocr, Score(1, 0, 5, 20))
    scores.add("gundam", "1x2", free_ocr, Score(1, 1, 5, 20))
    return scores


def test_scores_add_up_by_grid_and_preset() -> None:
    scores = example_scores()
    assert scores.presets() == ["small", "gundam"]
    assert scores.parts("gundam") == ["1x2", "2x3"]
    assert scores.figures("gundam", "2x3")["box_f1"] == 0.5
    assert scores.figures("gundam") == {
        "pages": 2,
        "box_f1": pytest.approx(0.8),
        "label_accuracy": pytest.approx(0.8),
        "cer_grounding": pytest.approx(0.1),
        "cer_free_ocr": pytest.approx(0.25),
        "ended": 0.5,
    }
    tree = scores.as_json()
    assert set(tree) == {"small", "gundam"} and "parts" not in tree["small"]
    assert tree["gundam"]["parts"]["1x2"]["cer_free_ocr"] == pytest.approx(0.25)  # type: ignore[index]
    json.dumps(tree)


def test_the_table_has_a_row_a_preset() -> None:
    assert example_scores().table().split("\n") == [
        "preset  pages  box F1@0.75  label accuracy  CER grounding  CER free OCR  ends with EOS",
        "small       2       1.0000          0.7500         0.1250             -         1.0000",
        "gundam      2       0.8000          0.8000         0.1000        0.2500         0.5000",
        "  1x2       2       1.0000          1.0000         0.0333        0.2500         0.5000",
        "  2x3       1       0.5000          0.5000         0.3000             -         1.0000",
    ]


def test_command_line_names_are_those_of_the_project() -> None:
    assert tuple(PRESETS) == PRESET_NAMES
    assert tuple(each.name.lower() for each in Prompt) == PROMPT_NAMES


def test_ngram_rule_equals_a_search_through_the_sequence() -> None:
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(0, 3, (60,), generator=generator).tolist()
    rule = NgramRule(ids[:10], 4)
    for end in range(10, 60):
        tail = ids[end - 3 : end]
        expected = {ids[i + 3] for i in range(end - 3) if ids[i : i + 3] == tail}
        assert rule.banned() == expected
        rule.push(ids[end])


def test_fixed_cache_equals_a_growing_one() -> None:
    torch.manual_seed(1)
    fixed, growing = FixedCache(length=8), LayerCache()
    for steps in (3, 1, 1):
        k, v = torch.randn(2, 4, 2, steps, 5)
        for ours, theirs in zip(fixed.append(k, v), growing.append(k, v), strict=True):
            assert torch.equal(ours, theirs)
    fixed.keep(torch.tensor([2]))
    assert growing.keys is not None
    keys, _ = fixed.append(*torch.zeros(2, 1, 2, 1, 5))
    assert torch.equal(keys[:, :, :5], growing.keys[2:3])


def plain_greedy(
    model: TrainingModel, vision: torch.Tensor, prompt: Prompt, ngram: int, limit: int
) -> list[int]:
    """One page, without caches and batches; the rule by searching the whole sequence."""
    before, after = prompt_ids(prompt)
    read = [*before, *[token_id(IMAGE)] * vision.shape[1], *after]
    written: list[int] = []
    while len(written) < limit and written[-1:] != [token_id(EOS)]:
        x = model.embed(vision, torch.tensor([before]), torch.tensor([[*after, *written]]))
        logits = model.lm_head(model.decode(x)[0][0, -1])
        ids = [*read, *written]
        tail = ids[len(ids) - ngram + 1 :]
        for start in range(len(ids) - ngram + 1):
            if ids[start : start + ngram - 1] == tail:
                logits[ids[start + ngram - 1]] = -torch.inf
        written.append(int(logits.argmax()))
    return written


@pytest.mark.parametrize("prompt", Prompt)
def test_batched_decoding_equals_one_page_at_a_time(
    model: TrainingModel, monkeypatch: pytest.MonkeyPatch, prompt: Prompt
) -> None:
    monkeypatch.setattr(evaluation, "NO_REPEAT_NGRAM", 3)
    kept: list[int] = []
    keep = FixedCache.keep

    def counted(cache: FixedCache, rows: torch.Tensor) -> None:
        kept.append(len(rows))
        keep(cache, rows)

    monkeypatch.setattr(FixedCache, "keep", counted)
    torch.manual_seed(6)
    vision = torch.randn(6, 7, 32)
    written = greedy(model, vision, prompt, 40)
    with torch.no_grad():
        expected = [plain_greedy(model, vision[row : row + 1], prompt, 3, 40) for row in range(6)]
    assert written == expected
    assert len({len(ids) for ids in written}) > 2, "pages should end at different lengths"
    assert kept and max(kept) <= 3, "finished pages should leave"


def page_views(mode: Mode, value: int) -> Shown:
    generator = torch.Generator().manual_seed(value)

    def pixels(width: int, height: int) -> object:
        return torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8).numpy()

    local = pixels(*mode.finest) if mode.cropped else None
    return Shown(mode, "", (), (10, 10), pixels(mode.side, mode.side), local)  # type: ignore[arg-type]


def test_looking_in_portions_equals_page_by_page(
    model: TrainingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "PAGES_SEEN_AT_ONCE", 2)
    mode = Mode("tiny-2x1", 128, 10, 2, 1)
    pages = [page_views(mode, value) for value in range(3)]
    together = look(model, pages)
    assert together.shape == (3, 10 * 21 + 2 * 3 + 1, 32)
    alone = torch.cat([look(model, [page]) for page in pages])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_batches_hold_one_mode_and_every_page() -> None:
    assert batches("small", 5, 2) == [
        [("small", 0), ("small", 1)],
        [("small", 2), ("small", 3)],
        [("small", 4)],
    ]
    parted = batches("gundam", 20, 2)
    assert parted[0] == [("gundam", 0), ("gundam", 8)] and parted[1] == [("gundam", 16)]
    assert sorted(index for batch in parted for _, index in batch) == list(range(20))
    for batch in parted:
        assert len({held_out.held_out_mode(*task) for task in batch}) == 1


def negated(task: tuple[str, int]) -> int:
    return -task[1]


def test_processes_keep_the_order() -> None:
    tasks = [[("small", 0), ("small", 1)], [("small", 2)], [("small", 3)]]
    assert list(in_processes(negated, tasks, 2)) == [[0, -1], [-2], [-3]]
    assert list(in_processes(negated, tasks, 1)) == [[0, -1], [-2], [-3]]


@pytest.mark.parametrize(
    ("preset", "size", "mode"),
    [
        ("small", (900, 300), SMALL),
        ("gundam", (600, 640), BASE),  # too small to be cut
        ("gundam", (800, 1200), GUNDAM[5]),  # 2x3
        ("gundam", (1000, 250), Mode("gundam-4x1", 1024, 1000, 4, 1)),  # a grid outside of training
    ],
)
def test_mode_of_a_sample(preset: str, size: tuple[int, int], mode: Mode) -> None:
    assert sample_mode(preset, *size) == mode


def test_held_out_pages_on_disk_are_the_pages(tmp_path: Path) -> None:
    write_held_out("small", 2, tmp_path)
    truth = json.loads((tmp_path / "ground_truth.json").read_text(encoding="utf-8"))
    assert list(truth) == ["held-out-small-0000.png", "held-out-small-0001.png"]
    for index, (name, entry) in enumerate(truth.items()):
        page = held_out_page("small", index)
        with Image.open(tmp_path / name) as image:
            assert image.convert("RGB").tobytes() == page.image.convert("RGB").tobytes()
            assert image.size == (entry["width"], entry["height"])
        assert [(each["label"], tuple(each["box"]), each["text"]) for each in entry["blocks"]] == [
            (each.label, tuple(each.box), each.text) for each in page.blocks
        ]
    assert held_out_page("small", 0).blocks != held_out_page("small", 1).blocks


def test_evaluation_from_drawing_to_scores(
    model: TrainingModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Pages in memory and the same pages read back from disk score the same."""
    monkeypatch.setattr(evaluation, "SPARE_TOKENS", 8 - SMALL.longest_target)
    lines: list[str] = []
    scores = evaluate(model, ("small",), count=2, batch=1, say=lines.append)
    assert [line.split(" left")[0].rsplit(" ", 2)[0].strip() for line in lines] == [
        "1/2 pages  small",
        "2/2 pages  small",
    ]
    write_held_out("small", 2, tmp_path)
    from_disk = evaluate_samples(model, tmp_path, ("small",))
    assert from_disk.parts("small") == ["held-out-small-0000.png", "held-out-small-0001.png"]
    assert from_disk.figures("small") == scores.figures("small")
    truth = json.loads((tmp_path / "ground_truth.json").read_text(encoding="utf-8"))
    blocks = list(itertools.chain.from_iterable(entry["blocks"] for entry in truth.values()))
    assert scores.total("small", Prompt.GROUNDING).pages == 2
    assert scores.total("small", Prompt.GROUNDING).boxes >= len(blocks)
