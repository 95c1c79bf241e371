"""The training form of the embedded checkpoint against plain references, its export, and its decoding."""

import itertools
import json
import math
import multiprocessing
import os
import random
import re
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

pytest.importorskip("matplotlib", reason="training pages are drawn with the fonts that matplotlib bundles")

from data.mini.training.answer_loss import NUMBER_WEIGHT, AnswerLoss, markup_loss
from data.mini.training.data import (
    Batch,
    Chunk,
    ChunkFeed,
    PagePool,
    Portion,
    asked,
    prompt_ids,
    token_id,
    tokenizer,
)
from data.mini.training.export import load_checkpoint, published_weights, save_checkpoint
from data.mini.training.markup import Prompt
from data.mini.training.model import (
    Cells,
    TrainedMixture,
    TrainingModel,
    build_model,
    cut_tiles,
    views_at_once,
)
from data.mini.training.portions import COMPILED, portions
from data.mini.training.ranks import FlatGradients, join_ranks
from data.mini.training.recorded import RecordedSteps
from data.mini.training.tokenizer import PAD
from data.mini.training.train import Trainer, TrainSettings
from data.mini.training.views import CROWDED, GUNDAM, MODES, SMALL, TINY
from dsocr_core.model.attention import Rotary, sdpa_core
from dsocr_core.model.kv_cache import KvCache
from dsocr_core.model.moe import MixtureOfExperts
from dsocr_core.model.weights import load_model
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
            core.encode_sam(pixels)
            for pixels in (local[page].view(3, 640, 2, 640).permute(2, 0, 1, 3), whole[page : page + 1])
        ]
        parts = [core.project(core.encode_clip(view), view) for view in views]
        length = vision.shape[1] + 4
        prompt = torch.cat([before, torch.full((1, vision.shape[1]), 5), after], 1)
        mask = (prompt == 5) & (torch.arange(length) <= vision.shape[1])
        x = core.fuse(prompt, mask, parts[0], (2, 1), parts[1])
        cache = KvCache(SIZE.decoder, length, torch.float32, torch.device("cpu"))
        rotary = Rotary(SIZE.decoder, length, torch.bfloat16, torch.float32, torch.device("cpu"))
        expected = core.decoder.last_logits(x, cache, rotary, sdpa_core, 3)
        torch.testing.assert_close(logits[page : page + 1], expected, rtol=1e-3, atol=1e-4)


def test_rotary_tables_change_in_place(model: TrainingModel) -> None:
    place = model.rotary.cos
    rounded = place.clone()
    model.set_rotary(rounded=False)
    assert model.rotary.cos is place and not torch.equal(place, rounded)
    model.set_rotary(rounded=True)
    assert torch.equal(place, rounded)


def test_flat_gradients_are_the_parameters_gradients(model: TrainingModel) -> None:
    gradients = FlatGradients(model)
    x = torch.randn(1, 4, 32)
    model.decode(x, 1)[0].square().sum().backward()
    weight = model.model.decoder.layers[0].self_attn.q_proj.weight
    plain = torch.autograd.grad(model.decode(x, 1)[0].square().sum(), weight)[0]
    torch.testing.assert_close(weight.grad, plain)
    norm = gradients.clip(0.5)
    torch.testing.assert_close(weight.grad, plain * 0.5 / norm)
    gradients.clear()
    assert float(weight.grad.abs().max()) == 0


def test_blocks_compile_without_a_break(model: TrainingModel) -> None:
    """Traced, not built: what is compiled must not ask the host for values."""
    pixels, cells = torch.randn(2, 3, 128, 128), _cells(2)
    target = torch.randint(3, 64, (2, 12))
    given = pixels, cells, torch.zeros(2, 1, dtype=torch.long), target, target
    plain = model(*given)
    model.compile_blocks(partial(torch.compile, backend="eager", fullgraph=True))
    compiled = model(*given)
    for name in ("text", "reading", "balance"):
        torch.testing.assert_close(getattr(compiled, name), getattr(plain, name))


def _cells(views: int) -> Cells:
    """Of views of 128 px."""
    return Cells(torch.randint(0, 96, (views, 8, 16)), torch.randint(0, 1001, (views, 4, 2, 2)))


def test_readers_settle_without_touching_the_towers(model: TrainingModel) -> None:
    patches, tokens = (
        torch.randn(1, 8, 8, 24, requires_grad=True),
        torch.randn(1, 4, 32, requires_grad=True),
    )
    cells = _cells(1)
    model.readers_settling = True
    model.reading_loss(patches, tokens, *cells).backward()
    assert patches.grad is None and model.patch_reader.weight.grad is not None
    model.readers_settling = False
    model.reading_loss(patches, tokens, *cells).backward()
    assert patches.grad is not None and tokens.grad is not None


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


def test_views_in_parts_read_like_all_at_once(model: TrainingModel, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, cells = torch.randn(3, 3, 128, 128), _cells(3)
    tokens, patches = model.view(pixels)
    parts = [
        model.reading_loss(patches[at], tokens[at], cells.characters[at], cells.places[at])
        for at in (slice(2), slice(2, 3))
    ]
    monkeypatch.setattr("data.mini.training.model.views_at_once", lambda _: 2)
    seen, loss = model.read(pixels, *cells)
    torch.testing.assert_close(seen, tokens)
    torch.testing.assert_close(loss, sum(parts) / 2)


def test_characters_are_read_in_the_tiles_and_places_in_the_whole_page(model: TrainingModel) -> None:
    whole, local = torch.randn(1, 3, 128, 128), torch.randn(1, 3, 640, 1280)
    characters, places = torch.randint(0, 96, (1, 40, 160)), _cells(1).places
    before = torch.zeros(1, 1, dtype=torch.long)
    read, target = torch.randint(3, 64, (2, 1, 4))
    tiles = local.view(3, 640, 2, 640).permute(2, 0, 1, 3)
    by_tile = characters.view(40, 2, 80).transpose(0, 1)
    with torch.no_grad():
        losses = model(whole, Cells(characters, places), before, read, target, local)
        expected = model.read(tiles, by_tile)[1] + model.read(whole, places=places)[1]
    torch.testing.assert_close(losses.reading, expected)


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


def test_the_loss_of_markup_knows_the_numbers_of_boxes() -> None:
    ids = tokenizer().encode("<|ref|>text<|/ref|><|det|>[[7, 45, 345, 999]]<|/det|>\n12 of 345").ids
    loss = markup_loss(1408)
    spelled = [tokenizer().id_to_token(id) for id in ids if loss.each.is_number[id]]
    assert spelled == ["7", "45", "345", "999", "12", "345"]
    beside = [tokenizer().id_to_token(id) for id in loss.each.near[token_id("99")].tolist()]
    assert beside == ["95", "96", "97", "98", "99", "100", "101", "102", "103"]


def _count(batch: Batch, kind: object) -> torch.Tensor:
    return batch.pixels.sum() + batch.targets.sum() + len(str(kind))


def _batch(value: int, length: int, device: str) -> Batch:
    pixels = torch.full((2, 4), value, device=device)
    tokens = torch.full((2, length), value, device=device)
    return Batch(pixels, pixels, pixels, tokens, tokens)


@pytest.mark.gpu
def test_replayed_steps_read_the_batch_they_are_given() -> None:
    device = torch.device("cuda")
    weight = torch.zeros(4, device=device, requires_grad=True)
    weight.grad = torch.zeros(4, device=device)

    def run(batch: Batch, kind: object) -> torch.Tensor:
        loss = (weight * batch.pixels.float()).sum() * (2.0 if kind == "twice" else 1.0)
        loss.backward()
        return loss.detach() + batch.targets.sum()

    steps = RecordedSteps(run, device, enabled=True)
    for kind, factor in (("once", 1.0), ("twice", 2.0)):
        for length in (3, 5):
            for value in (1, 2, 3, 4):
                weight.grad.zero_()
                reported = steps(_batch(value, length, "cuda"), kind)
                assert float(reported) == 2 * length * value
                assert weight.grad.tolist() == [2 * value * factor] * 4
    assert steps.recorded == 4


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


def test_feed_renders_in_a_worker_and_says_when_it_stopped() -> None:
    grid = GUNDAM[0]  # 1x2
    feed = ChunkFeed("5", (Portion(TINY, 4, 1.0), Portion(grid, 2, 1.0)), workers=1, difficulty=0.2)
    chunks = dict(feed.get() for _ in range(2))
    small, large = chunks[0], chunks[1]
    assert small.pixels.shape[1:] == (512, 512, 3) and small.characters.shape[1:] == (32, 64)
    assert small.local_pixels is None
    assert large.local_pixels is not None and large.local_pixels.shape[1:] == (1280, 640, 3)
    assert small.places.shape[1:] == (4, 8, 8) and large.places.shape[1:] == (4, 16, 16)
    for chunk in chunks.values():
        for targets in (chunk.grounding, chunk.free_ocr):
            assert all(token_id("<｜end▁of▁sentence｜>") in row for row in targets.tolist())
    feed.close()
    with pytest.raises(RuntimeError, match="renderer stopped"):
        while feed.take() is not None:
            pass


def _chunk(value: int, length: int) -> Chunk:
    targets = torch.full((2, 64), token_id(PAD), dtype=torch.int16)
    targets[:, :length] = value
    image = torch.full((2, 4, 4, 3), value, dtype=torch.uint8)
    return Chunk(image, image[..., 0], image[..., 0].short(), targets, targets[:, :40])


def test_pool_gives_targets_of_like_length_and_cuts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    order = random.Random(0)
    monkeypatch.setattr("data.mini.training.data.SEQUENCE_STEP", 32)
    pool = PagePool(4, torch.device("cpu"))
    pool.add(_chunk(11, 5))
    pool.add(_chunk(12, 60))
    lengths = []
    for _ in range(40):
        batch = pool.draw(2, Prompt.GROUNDING, 7, order)
        rows = batch.targets != token_id(PAD)
        # Pixels and targets belong together, and nothing is cut off.
        assert [5 if p == 11 else 60 for p in batch.pixels[:, 0, 0, 0]] == rows.sum(1).tolist()
        lengths.append(batch.targets.shape[1])
    more = len(prompt_ids(Prompt.GROUNDING)[1]) - 1
    assert set(lengths) == {25 + more, 89 + more}  # with 7 others, whole steps of 32


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


def test_a_step_is_made_of_views_that_are_compiled() -> None:
    fed = portions()
    assert {each.mode for each in fed} == set(MODES)
    assert sum(each.share for each in fed) == pytest.approx(1)
    for mode, pages in [(each.mode, each.batch) for each in fed]:
        if mode.cropped or mode is SMALL:
            tiles = pages * mode.columns * mode.rows or pages
            assert tiles % views_at_once(640) == 0, mode.name
        if mode.side == 1024:
            assert pages % views_at_once(1024) == 0, mode.name
    assert {(mode.side, mode.cropped) for mode in COMPILED} == {(640, False), (1024, False), (1024, True)}
    assert [(each.mode.name, each.batch) for each in portions("base", size=0.1)] == [("base", 2)]
    with pytest.raises(ValueError, match="no mode"):
        portions("huge")


def _average_in_a_group(rank: int, port: int, results: "multiprocessing.Queue[list[float]]") -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = join_ranks("cpu")
    values = torch.tensor([float(rank), 4.0])
    ranks.average(values)
    results.put([*values.tolist(), ranks.share(7.0 + rank), *ranks.gather(values).flatten().tolist()])
    ranks.wait()
    ranks.close()


@pytest.mark.usefixtures("quick_spawn")
def test_two_processes_agree() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_average_in_a_group, args=(r, port, results)) for r in range(2)]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join(300)
    assert answers == [[0.5, 4.0, 7.0, 0.5, 4.0, 0.5, 4.0]] * 2


def test_a_run_goes_on_from_what_another_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = tiny_size(layers=2, vocabulary=1408)
    monkeypatch.setattr(
        "data.mini.training.train.build_model", lambda _: TrainingModel(size, markup_loss(1408))
    )
    for module in ("data", "train"):
        monkeypatch.setattr(f"data.mini.training.{module}.chunk_pages", lambda _: 1)
    first = TrainSettings(
        tmp_path / "first", seconds=600, steps=3, only="tiny", size=0.001, workers=1, pool_chunks=4,
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
