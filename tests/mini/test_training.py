"""The training form of the embedded checkpoint against plain references, its export, and its decoding."""

import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

pytest.importorskip("matplotlib", reason="training pages are drawn with the fonts that matplotlib bundles")

from data.mini.training.data import SMALL, Chunk, ChunkFeed, PagePool, normalised, token_id, tokenizer
from data.mini.training.decoder import DecoderSize, LayerCache, Mixture, rotary_frequencies
from data.mini.training.evaluate import NgramRule, edit_distance, iou, matches, mode_named, score
from data.mini.training.export import (
    load_checkpoint,
    published_weights,
    read_weights,
    save_checkpoint,
    shards,
)
from data.mini.training.model import ModelSize, TrainingModel, build_model
from data.mini.training.train import Schedule, TrainSettings
from data.mini.training.vision import ClipSize, SamBlock, SamSize, relative_positions

MINI = Path(__file__).parents[2] / "data" / "mini"
PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "vendor" / "model.safetensors.index.json"
SIZE = ModelSize(
    SamSize(width=24, layers=2, heads=2, global_layers=(1,), downsample_channels=(16, 32), grid=16),
    ClipSize(width=32, layers=1, heads=2, grid=4),
    DecoderSize(
        hidden=32,
        layers=3,
        heads=2,
        dense_width=48,
        expert_width=16,
        experts=4,
        experts_per_token=2,
        shared_experts=2,
        first_dense=1,
        vocabulary=64,
    ),
    projector_inputs=64,
)


@pytest.fixture
def model() -> TrainingModel:
    torch.manual_seed(0)
    return TrainingModel(SIZE).eval()


def test_mixture_equals_routing_token_by_token() -> None:
    torch.manual_seed(1)
    mixture = Mixture(SIZE.decoder).double()
    x = torch.randn(2, 5, 32, dtype=torch.float64)
    out, balance = mixture(x)
    expected = torch.zeros_like(x)
    for b in range(2):
        for t in range(5):
            token = x[b, t]
            weights = (mixture.gate.weight @ token).softmax(-1)
            total = mixture.shared_experts(token)
            for e in weights.topk(2).indices.tolist():
                gate, up = mixture.experts.gate_proj[e] @ token, mixture.experts.up_proj[e] @ token
                total = total + weights[e] * (mixture.experts.down_proj[e] @ (F.silu(gate) * up))
            expected[b, t] = total
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)
    assert balance.item() >= 0.9


@pytest.mark.parametrize(("window", "side"), [(0, 16), (0, 10), (14, 10), (14, 20)])
def test_sam_attention_equals_masked_attention(window: int, side: int) -> None:
    torch.manual_seed(2)
    block = SamBlock(SIZE.sam, window)
    attention = block.attn
    torch.nn.init.normal_(attention.rel_pos_h)
    torch.nn.init.normal_(attention.rel_pos_w)
    extent = window or side

    def reference(y: torch.Tensor) -> torch.Tensor:
        n = extent * extent
        q, k, v = attention.qkv(y).view(len(y), n, 3, 2, 12).permute(2, 0, 3, 1, 4)
        rows = relative_positions(attention.rel_pos_h, extent)
        columns = relative_positions(attention.rel_pos_w, extent)
        bias = torch.zeros(len(y), 2, n, n)
        for query in range(n):
            for axis, table in ((0, rows), (1, columns)):
                at = divmod(query, extent)[axis]
                score_of = torch.einsum("bhd,kd->bhk", q[:, :, query], table[at])  # (B, H, extent)
                full = score_of[..., :, None] if axis == 0 else score_of[..., None, :]
                bias[:, :, query] += full.expand(-1, -1, extent, extent).flatten(2)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return attention.proj(out.transpose(1, 2).reshape(len(y), extent, extent, 24))

    x = torch.randn(1, side, side, 24)
    with torch.no_grad():
        y = block.norm1(x)
        if window:
            whole = -(-side // window) * window
            y = F.pad(y, (0, 0, 0, whole - side, 0, whole - side))
            out = torch.zeros_like(y)
            for top in range(0, whole, window):
                for left in range(0, whole, window):
                    part = reference(y[:, top : top + window, left : left + window])
                    out[:, top : top + window, left : left + window] = part
            out = out[:, :side, :side]
        else:
            out = reference(y)
        expected = x + out
        expected = expected + block.mlp(block.norm2(expected))
        torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-4)


def test_cached_steps_equal_one_pass(model: TrainingModel) -> None:
    x = torch.randn(2, 9, 32)
    caches = [LayerCache() for _ in model.model.layers]
    with torch.no_grad():
        whole, _ = model.decode(x)
        parts = [model.decode(x[:, :5], 0, caches)[0]]
        parts += [model.decode(x[:, t : t + 1], t, caches)[0] for t in range(5, 9)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-5)


def test_fusion_lays_tiles_out_row_by_row(model: TrainingModel) -> None:
    tokens = torch.full((1, 2, 2, 32), -1.0)
    tiles = torch.arange(6.0).view(1, 2, 3, 1, 1, 1).expand(1, 2, 3, 2, 2, 32)  # rows 2, columns 3
    fused = model.fuse(tokens, tiles)[0]
    marks = [f"{v[0]:.0f}" if bool((v == v[0]).all()) else "n" for v in fused]
    row = ["0", "0", "1", "1", "2", "2", "n"]
    low = ["3", "3", "4", "4", "5", "5", "n"]
    assert marks == [*row, *row, *low, *low, "-1", "-1", "n", "-1", "-1", "n", "n"]
    torch.testing.assert_close(fused[6], model.model.image_newline)
    torch.testing.assert_close(fused[-1], model.model.view_seperator)


def test_rotary_rounding_is_bf16() -> None:
    exact, rounded = rotary_frequencies(64, False), rotary_frequencies(64, True)
    assert float(exact[1]) == pytest.approx(10000 ** (-2 / 64))
    assert torch.equal(rounded, exact.bfloat16().float()) and not torch.equal(rounded, exact)


def test_readers_settle_without_touching_the_towers(model: TrainingModel) -> None:
    patches, tokens = (
        torch.randn(1, 8, 8, 24, requires_grad=True),
        torch.randn(1, 2, 2, 32, requires_grad=True),
    )
    characters = torch.randint(0, 96, (1, 8, 16))
    model.readers_settling = True
    model.reading_loss(patches, tokens, characters).backward()
    assert patches.grad is None and model.patch_reader.weight.grad is not None
    model.readers_settling = False
    model.reading_loss(patches, tokens, characters).backward()
    assert patches.grad is not None and tokens.grad is not None


def test_a_few_steps_lower_the_losses(model: TrainingModel) -> None:
    torch.manual_seed(3)
    pixels, characters = torch.randn(2, 3, 128, 128), torch.randint(0, 96, (2, 8, 16))
    before, after = torch.zeros(2, 1, dtype=torch.long), torch.full((2, 3), 5)
    target = torch.randint(3, 64, (2, 12))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    history = []
    for _ in range(25):
        losses = model(pixels, characters, before, after, target, 2)
        history.append((losses.text.item(), losses.reading.item()))
        optimizer.zero_grad()
        (losses.text + losses.reading + 0.01 * losses.balance).backward()
        optimizer.step()
    assert history[-1][0] < 0.7 * history[0][0]
    assert history[-1][1] < 0.9 * history[0][1]


def test_export_has_the_published_names_and_reads_back(model: TrainingModel, tmp_path: Path) -> None:
    save_checkpoint(model, tmp_path)
    assert set(read_weights(tmp_path)) == set(published_weights(model))
    again = TrainingModel(SIZE)
    load_checkpoint(again, tmp_path)
    for name, value in published_weights(again).items():
        assert torch.equal(value, published_weights(model)[name]), name
    assert not list(tmp_path.glob("*.partial"))


def test_shards_keep_to_the_limit_and_the_order() -> None:
    weights = {name: torch.zeros(100, dtype=torch.bfloat16) for name in "abcde"}
    parts = shards(weights, 400)
    assert [list(part) for part in parts] == [["a", "b"], ["c", "d"], ["e"]]


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


def test_ngram_rule_equals_a_search_through_the_sequence() -> None:
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(0, 3, (60,), generator=generator).tolist()
    rule = NgramRule(ids[:10], 4)
    for end in range(10, 60):
        tail = ids[end - 3 : end]
        expected = {ids[i + 3] for i in range(end - 3) if ids[i : i + 3] == tail}
        assert set(rule.banned()) == expected
        rule.push(ids[end])


def test_scores_of_known_texts() -> None:
    assert edit_distance("kitten", "sitting") == 3
    assert iou((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    boxes = [("text", (0, 0, 100, 100)), ("text", (0, 200, 100, 300))]
    assert matches(boxes, boxes[::-1]) == 2
    assert matches(boxes, [("title", (0, 0, 100, 100))]) == 0
    assert matches([boxes[0]] * 2, [boxes[0]]) == 1
    markup = "<|ref|>text<|/ref|><|det|>[[0, 0, 9, 9]]<|/det|>\nabcd"
    written = tokenizer().encode(markup.replace("abcd", "abxd")).ids
    result = score([markup], [written])
    assert (result.box_f1, result.character_error_rate, result.ended) == (1.0, 0.25, 0.0)


def test_feed_renders_in_a_worker_and_says_when_it_stopped() -> None:
    feed = ChunkFeed(5, SMALL, workers=1, chunk_pages=2)
    feed.difficulty.value = 0.2
    chunk = feed.get()
    assert chunk.pixels.shape == (2, 640, 640, 3) and chunk.characters.shape == (2, 40, 80)
    assert all(token_id("<｜end▁of▁sentence｜>") in row for row in chunk.targets.tolist())
    feed.close()
    with pytest.raises(RuntimeError, match="renderer stopped"):
        while feed.take() is not None:
            pass


def test_pool_is_a_ring() -> None:
    def chunk(value: int) -> Chunk:
        return Chunk(*(torch.full((2, 1), value, dtype=torch.uint8) for _ in range(3)))

    pool = PagePool(4, chunk(0), torch.device("cpu"))
    pool.add(chunk(1))
    assert set(pool.draw(50)[2].flatten().tolist()) == {1}
    pool.add(chunk(2))
    pool.add(chunk(3))
    assert set(pool.draw(200)[2].flatten().tolist()) == {2, 3}


def test_noise_keeps_the_range_and_clean_pixels_are_exact() -> None:
    pixels = torch.randint(0, 256, (4, 8, 8, 3), dtype=torch.uint8)
    clean = normalised(pixels, noisy=False)
    torch.testing.assert_close(clean, (pixels.permute(0, 3, 1, 2) / 255 - 0.5) / 0.5, rtol=0, atol=1e-6)
    noisy = normalised(pixels, noisy=True)
    assert noisy.shape == clean.shape and float(noisy.abs().max()) <= 1


def test_schedule_warms_up_and_cools_down() -> None:
    schedule = Schedule(TrainSettings(Path("out"), 1.0, learning_rate=1.0, warm_up_steps=10))
    assert schedule.rate(0.0, 0) == pytest.approx(0.1)
    assert schedule.rate(0.0, 500) == pytest.approx(1.0)
    assert schedule.rate(1.0, 500) == pytest.approx(0.02)
    assert [schedule.difficulty(at) for at in (0.0, 0.35, 1.0)] == pytest.approx([0.25, 1.0, 1.0])
    assert (schedule.reading_weight(0.0), schedule.reading_weight(0.9)) == (1.0, 0.15)


def test_mode_names() -> None:
    assert (mode_named("small").side, mode_named("base").side) == (640, 1024)
    assert (mode_named("gundam-2x3").columns, mode_named("gundam-2x3").rows) == (2, 3)
    with pytest.raises(ValueError, match="no such mode"):
        mode_named("large-2")
