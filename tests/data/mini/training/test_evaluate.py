"""Scores against hand-computed values, decoding against a plain search, held-out pages against themselves."""

import itertools
import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("matplotlib", reason="held-out pages are drawn with the fonts that matplotlib bundles")

from data.mini.training import evaluate as evaluation
from data.mini.training.data import prompt_ids, token_id
from data.mini.training.evaluate import evaluate, evaluate_samples, greedy
from data.mini.training.held_out import write_held_out
from data.mini.training.markup import Prompt
from data.mini.training.model import use_whole_batches
from data.mini.training.scores import Score, Scores, score_page
from data.mini.training.tokenizer import EOS, IMAGE
from data.mini.training.views import SMALL
from dsocr_core.models.blocks.attention import Rotary, sdpa_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from tests.support.training_model import tiny_size

SIZE = tiny_size(layers=2, vocabulary=1408)


@pytest.fixture
def model() -> OcrModel:
    """Random; it writes one of twelve tokens, now and then the end token, and looks at the whole sequence."""
    model = random_model(SIZE, torch.device("cpu"), torch.float32)
    use_whole_batches(model)
    head = model.decoder.lm_head.weight
    head[12:] = 0
    head[:12] *= 20
    head[token_id(EOS)] *= 0.8
    for name, weight in model.named_parameters():
        if name.endswith("o_proj.weight"):
            weight.mul_(10)
    return model


def block(label: str, box: str, text: str) -> str:
    return f"<|ref|>{label}<|/ref|><|det|>[[{box}]]<|/det|>\n{text}"


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


def plain_greedy(model: OcrModel, vision: torch.Tensor, prompt: Prompt, ngram: int, limit: int) -> list[int]:
    """One page, read anew for every token; the rule by searching the whole sequence."""
    before, after = prompt_ids(prompt)
    read = [*before, *[token_id(IMAGE)] * vision.shape[1], *after]
    written: list[int] = []
    while len(written) < limit and written[-1:] != [token_id(EOS)]:
        embedded = [model.embed(torch.tensor([ids])) for ids in (before, [*after, *written])]
        x = torch.cat([embedded[0], vision, embedded[1]], 1)
        places = x.shape[1], torch.float32
        cache = KvCache(SIZE.decoder, *places, vision.device)
        rotary = Rotary(SIZE.decoder, *places, torch.float32, vision.device)
        logits = model.forward_text(x, cache, rotary, sdpa_core)[0]
        ids = [*read, *written]
        tail = ids[len(ids) - ngram + 1 :]
        for start in range(len(ids) - ngram + 1):
            if ids[start : start + ngram - 1] == tail:
                logits[ids[start + ngram - 1]] = -torch.inf
        written.append(int(logits.argmax()))
    return written


def test_batched_decoding_equals_one_page_at_a_time(model: OcrModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "NO_REPEAT_NGRAM", 3)
    torch.manual_seed(6)
    vision = torch.randn(6, 7, 32)
    written = greedy(model, vision, Prompt.GROUNDING, 40)
    with torch.no_grad():
        expected = [plain_greedy(model, vision[at : at + 1], Prompt.GROUNDING, 3, 40) for at in range(6)]
    assert written == expected
    assert len({len(ids) for ids in written}) > 2, "pages should end at different lengths, and leave"


def test_evaluation_from_drawing_to_scores(
    model: OcrModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
