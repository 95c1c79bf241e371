"""The training form of the embedded checkpoint against plain references, its export, and its decoding."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

pytest.importorskip("matplotlib", reason="training pages are drawn with the fonts that matplotlib bundles")

from data.mini.training.answer_loss import NUMBER_WEIGHT, AnswerLoss, markup_loss
from data.mini.training.data import asked, prompt_ids, token_id
from data.mini.training.export import load_checkpoint, published_weights, save_checkpoint
from data.mini.training.markup import Prompt
from data.mini.training.model import Cells, TrainedMixture, TrainingModel, build_model, cut_tiles
from data.mini.training.tokenizer import PAD
from data.mini.training.train import Trainer, TrainSettings
from data.mini.training.views import CROWDED
from dsocr_core.models.blocks.attention import Rotary, sdpa_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.models.weights import load_model
from tests.support.paths import MINI, SHARED
from tests.support.training_model import tiny_size

PUBLISHED = SHARED / "data" / "vendor" / "model.safetensors.index.json"
SIZE = tiny_size(layers=3, vocabulary=64)


@pytest.fixture
def model() -> TrainingModel:
    torch.manual_seed(0)
    model = TrainingModel(SIZE, AnswerLoss(64, padding=2)).eval()
    model.prepare_rotary(256, torch.float32)
    return model


def test_the_mixture_of_whole_batches_is_the_cores() -> None:
    torch.manual_seed(1)
    mixture, routed = TrainedMixture(SIZE.decoder), MixtureOfExperts(SIZE.decoder)
    for weight in mixture.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    routed.load_state_dict(mixture.state_dict())
    x = torch.randn(2, 5, 32)
    torch.testing.assert_close(mixture(x), routed(x), rtol=1e-4, atol=1e-5)
    assert mixture.balance.item() >= 0.9


def test_a_page_is_read_as_the_core_reads_it(model: TrainingModel, tmp_path: Path) -> None:
    """Towers, fusion of tiles and logits of trained weights: those of the exported checkpoint in the core."""
    whole, local = torch.randn(2, 3, 128, 128), torch.randn(2, 3, 640, 1280)
    before, after = torch.tensor([[0]]), torch.tensor([[7, 8, 9]])
    save_checkpoint(model, tmp_path)
    core = load_model(SIZE, tmp_path, torch.device("cpu"), torch.float32)
    load_checkpoint(model, tmp_path)  # the same rounding
    tiles = cut_tiles(local)
    with torch.no_grad():
        seen, crops = model.view(whole)[0], model.view(tiles.flatten(0, 2))[0]
        vision = model.fuse(seen, crops.unflatten(0, (2, 2)), (2, 1))
        ids = (each.expand(2, -1) for each in (before, after))
        logits, _ = model.decode(model.embed(vision, *ids), 3)
        assert not model._patches
    for page in range(2):
        views = [
            core.sam(pixels)
            for pixels in (local[page].view(3, 640, 2, 640).permute(2, 0, 1, 3), whole[page : page + 1])
        ]
        parts = [core.projector(core.clip(view), view) for view in views]
        length = vision.shape[1] + 4
        prompt = torch.cat([before, torch.full((1, vision.shape[1]), 5), after], 1)
        mask = (prompt == 5) & (torch.arange(length) <= vision.shape[1])
        x = core.fuse(prompt, mask, [(parts[0], (2, 1), parts[1])])
        cache = KvCache(SIZE.decoder, length, torch.float32, torch.device("cpu"))
        rotary = Rotary(SIZE.decoder, length, torch.bfloat16, torch.float32, torch.device("cpu"))
        expected = core.decoder.last_logits(x, cache, rotary, sdpa_core, 3)
        torch.testing.assert_close(logits[page : page + 1], expected, rtol=1e-3, atol=1e-4)


def _cells(views: int) -> Cells:
    """Of views of 128 px."""
    return Cells(torch.randint(0, 96, (views, 8, 16)), torch.randint(0, 1001, (views, 4, 2, 2)))


def test_a_few_steps_lower_the_losses(model: TrainingModel) -> None:
    torch.manual_seed(3)
    pixels, cells = torch.randn(2, 3, 128, 128), _cells(2)
    before = torch.zeros(2, 1, dtype=torch.long)
    target = torch.randint(3, 64, (2, 12))
    read = torch.cat([torch.full((2, 1), 5), target[:, :-1]], 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    history = []
    for _ in range(25):
        losses = model(pixels, cells, before, read, target)
        history.append((losses.text.item(), losses.reading.item()))
        optimizer.zero_grad()
        (losses.text + losses.reading + 0.01 * losses.balance).backward()
        optimizer.step()
    assert history[-1][0] < 0.7 * history[0][0]
    assert history[-1][1] < 0.9 * history[0][1]


def test_a_place_counts_more_and_its_neighbours_take_a_share() -> None:
    """Against a loop over tokens: vocabulary of 12, the numbers 0..9 are the ids 11, 10, ..., 2."""
    torch.manual_seed(4)
    numbers = list(range(11, 1, -1))
    loss = AnswerLoss(12, padding=3, numbers=numbers, opening=0, closing=1)
    # 7 outside, 7 and 0 inside, 9 after the close; two of padding (which is the number 8's id, too).
    target = torch.tensor([[numbers[7], 0, numbers[7], numbers[0], 1, numbers[9], 3, 3]])
    logits = torch.randn(1, 8, 12)
    log_p = logits.log_softmax(-1)[0]
    share = {step: math.exp(-abs(step) / 0.7) for step in range(-4, 5)}
    total = sum(share.values())

    def place(row: int, number: int) -> float:
        return -sum(
            part / total * float(log_p[row, numbers[min(9, max(0, number + step))]])
            for step, part in share.items()
        )

    words = sum(-float(log_p[row, target[0, row]]) for row in (0, 1, 4, 5))
    expected = (words + NUMBER_WEIGHT * (place(2, 7) + place(3, 0))) / (4 + 2 * NUMBER_WEIGHT)
    assert float(loss(logits, target)) == pytest.approx(expected, rel=1e-5)
    plain = AnswerLoss(12, padding=3)
    kept = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=3)
    torch.testing.assert_close(plain(logits, target), kept)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published weight index is not beside the checkout")
def test_configured_model_has_exactly_the_published_kinds_of_weight() -> None:
    def kinds(names: object) -> set[str]:
        return {re.sub(r"\.\d+\.", ".N.", name) for name in names}  # type: ignore[attr-defined]

    published = json.loads(PUBLISHED.read_text())["weight_map"]
    assert kinds(published_weights(build_model(MINI / "config.json"))) == kinds(published)


def test_shipped_shards_are_small_bf16_and_complete() -> None:
    index = json.loads((MINI / "model.safetensors.index.json").read_text())
    total = 0
    found: set[str] = set()
    for name in set(index["weight_map"].values()):
        assert (MINI / name).stat().st_size <= 15 * 2**20
        with safe_open(str(MINI / name), framework="pt") as shard:
            for key in shard.keys():  # noqa: SIM118
                tensor = shard.get_tensor(key)
                assert tensor.dtype == torch.bfloat16 and bool(tensor.isfinite().all()), key
                assert index["weight_map"][key] == name
                total += tensor.nbytes
                found.add(key)
    assert found == set(index["weight_map"])
    assert total == index["metadata"]["total_size"] < 60 * 10**6
    load_checkpoint(build_model(MINI / "config.json"), MINI)


def test_the_answer_follows_the_prompt() -> None:
    """Each token's target is the one after it; what the prompt says is not to be learned."""
    answers, pad = torch.tensor([[11, 12, 13], [14, 15, token_id(PAD)]]), token_id(PAD)
    for prompt in Prompt:
        rest = prompt_ids(prompt)[1]
        read, targets = asked(answers, prompt)
        assert read.tolist() == [[*rest, 11, 12], [*rest, 14, 15]]
        assert targets.tolist() == [[*[pad] * (len(rest) - 1), *row] for row in answers.tolist()]


@torch.no_grad()
def test_reading_loss_is_that_of_each_reader(model: TrainingModel) -> None:
    """Against sums over single cells; crowded ones are left out, those of a dense token count more."""
    patches, tokens = torch.randn(1, 8, 8, 24), torch.randn(1, 4, 32)
    characters, places = _cells(1)
    characters[0, 3, 5] = CROWDED
    places[0, 1, 0, 1], places[0, 2, 1, 0] = 0, 1000  # nothing there; the last number
    by_patch = model.patch_reader(patches).view(8, 8, 2, 96)
    by_token = model.token_reader(tokens).view(2, 2, 4, 4, 2, 96)  # token, its patches, their cells
    by_edge = model.place_reader(tokens).view(2, 2, 4, 1001)  # token, its four edges
    sums = {"patch": [0.0, 0.0], "token": [0.0, 0.0], "place": [0.0, 0.0]}
    share = {step: math.exp(-abs(step) / 0.7) for step in range(-4, 5)}

    def add(reader: str, logits: torch.Tensor, target: int, more: float = 1.0) -> None:
        weight = more if target else 0.1 * more
        sums[reader][0] -= weight * float(logits.log_softmax(-1)[target])
        sums[reader][1] += weight

    characters[0, :4, :8] = 0
    characters[0, 1, 2:5] = torch.tensor([7, 30, 95])  # three in one token, in each other one about 32
    known = (characters[0] != CROWDED) & (characters[0] > 0)
    for y, x in itertools.product(range(8), range(8)):
        place = (y // 4, x // 4, y % 4, x % 4)
        printed = int(known[y // 4 * 4 :][:4, x // 4 * 8 :][:, :8].sum())
        for half in range(2):
            target = int(characters[0, y, 2 * x + half])
            if target != CROWDED:
                add("patch", by_patch[y, x, half], target)
                add("token", by_token[place][half], target, 1 + printed / 8)
    characters_alone = sum(total / weight for total, weight in sums.values() if weight)
    for y, x, edge in itertools.product(range(2), range(2), range(4)):
        target = int(places[0, edge, y, x])
        if not target:
            add("place", by_edge[y, x, edge], 0)
            continue
        log_p = by_edge[y, x, edge].log_softmax(-1)
        for step, part in share.items():  # the numbers are the classes 1..1000
            near = min(1000, max(1, target + step))
            sums["place"][0] -= part / sum(share.values()) * float(log_p[near])
        sums["place"][1] += 1
    expected = sum(total / weight for total, weight in sums.values())
    assert float(model.reading_loss(patches, tokens, characters, places)) == pytest.approx(expected, rel=1e-5)
    alone = [model.reading_loss(patches, tokens, *given) for given in ((characters, None), (None, places))]
    assert float(alone[0]) == pytest.approx(characters_alone, rel=1e-5)
    assert float(alone[1]) == pytest.approx(expected - characters_alone, rel=1e-5)


def test_a_run_goes_on_from_what_another_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = tiny_size(layers=2, vocabulary=1408)
    monkeypatch.setattr(
        "data.mini.training.train.build_model", lambda _: TrainingModel(size, markup_loss(1408))
    )
    for module in ("data", "train"):
        monkeypatch.setattr(f"data.mini.training.{module}.chunk_pages", lambda _: 1)
    first = TrainSettings(
        tmp_path / "first", seconds=600, steps=2, only="tiny", size=0.001, workers=1, pool_chunks=4,
        warm_up_steps=1, first_difficulty=0.0, full_difficulty_at=9.0, device="cpu", compiled=False,
    )  # fmt: skip
    trainer = Trainer(first)
    trainer.run()
    left = trainer.model
    second = Trainer(replace(first, out=tmp_path / "second", start_from=first.out))
    assert not second.model.readers_settling  # they came along
    before = published_weights(second.model)
    assert all(torch.equal(weight, published_weights(left)[name]) for name, weight in before.items())
    second.run()
    after = published_weights(second.model)
    assert all(bool(weight.isfinite().all()) for weight in after.values())
    assert any(not torch.equal(weight, before[name]) for name, weight in after.items())
    assert not list(second.settings.out.glob("*.partial"))
