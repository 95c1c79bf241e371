"""Attention over a grid by kernels against a softmax written out in float64, and in the tower's blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are Triton's")

from data.mini.training import grid_agreement as agreement
from data.mini.training.grid_agreement import disagreement, random_case, with_gradients, works
from data.mini.training.grid_attention import _grid_attention, grid_attention, plain_grid_attention
from data.mini.training.vision import SamBlock, SamSize
from tests.support.interpreter import device, interpreter_as_devices

__all__ = ["device", "interpreter_as_devices"]

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]
NARROW = SamSize(width=64, layers=2, heads=2, global_layers=(1,), downsample_channels=(16, 32), grid=9)


def reference(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    side = rows.shape[-1]
    bias = (rows[..., :, None] + columns[..., None, :]).flatten(-2)  # (B, H, N, N): key y S + x
    assert bias.shape[-1] == side * side
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias
    return scores.softmax(-1) @ v


def assert_as_reference(
    attention: Callable[..., Tensor], inputs: list[Tensor], d_out: Tensor, float32_tolerance: float = 2e-5
) -> None:
    """The tolerance in bf16 is that of its rounding, relative to the largest number of each result."""
    expected = with_gradients(reference, [x.double() for x in inputs], d_out.double())
    found = with_gradients(attention, inputs, d_out)
    tolerance = float32_tolerance if inputs[0].dtype == torch.float32 else 2e-2
    for name, one, other in zip(agreement.NAMES, found, expected, strict=True):
        assert one.dtype == inputs[0].dtype
        error = (one.double() - other).abs().max() / other.abs().max()
        assert error <= tolerance, f"{name}: {error:.2e}"


@pytest.mark.parametrize(
    ("views", "heads", "side", "width", "dtype"),
    [
        (3, 1, 5, 16, torch.float32),  # one block of queries, mostly empty
        (1, 3, 8, 32, torch.bfloat16),
        (1, 1, 9, 64, torch.float32),  # tiles of one row or column, a block of queries half empty
        (1, 1, 18, 32, torch.bfloat16),  # tiles of two rows or columns at the end
    ],
)
def test_output_and_gradients(
    views: int, heads: int, side: int, width: int, dtype: torch.dtype, device: torch.device
) -> None:
    inputs, d_out = random_case(views, heads, side, width, dtype, device)
    assert_as_reference(grid_attention, inputs, d_out)


def test_the_plain_way_is_the_same(device: torch.device) -> None:
    inputs, d_out = random_case(2, 3, 5, 12, torch.float32, device)
    assert_as_reference(plain_grid_attention, inputs, d_out)


def test_any_order_in_memory(device: torch.device) -> None:
    inputs, d_out = random_case(1, 2, 5, 16, torch.float32, device)
    turned = [x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in inputs]
    spread = d_out[:, :1, :1, :1].expand_as(d_out)  # as the gradient of a sum
    assert not any(x.stride(-1) == 1 for x in (*turned, spread))
    assert_as_reference(grid_attention, turned, spread)


def test_large_scores_stay_finite(device: torch.device) -> None:
    """Only the difference from the best key matters, wherever that one is."""
    inputs, d_out = random_case(1, 1, 5, 16, torch.float32, device)
    inputs[3][..., 1::2] += 300.0
    inputs[4] -= 1000.0
    # Scores near 1000 are 6e-5 apart in float32.
    assert_as_reference(grid_attention, inputs, d_out, float32_tolerance=2e-4)


def test_as_an_operator(device: torch.device) -> None:
    """Fake outputs, autograd and tracing agree with what runs."""
    inputs, _ = random_case(1, 2, 5, 16, torch.float32, device)
    torch.library.opcheck(_grid_attention, [x.detach().requires_grad_() for x in inputs])


def test_sizes_that_do_not_fit_are_refused() -> None:
    inputs, _ = random_case(1, 1, 4, 16, torch.float32, torch.device("cpu"))
    q, k, v, rows, columns = inputs
    with pytest.raises(ValueError, match="head width 8"):
        grid_attention(q[..., :8], k, v, rows, columns)
    with pytest.raises(ValueError, match=r"k is torch.float32 \[1, 1, 15, 16\], expected"):
        grid_attention(q, k[:, :, :15], v, rows, columns)
    with pytest.raises(ValueError, match=r"columns is torch.bfloat16"):
        grid_attention(q, k, v, rows, columns.bfloat16())
    with pytest.raises(ValueError, match="float64"):
        grid_attention(*(x.double() for x in inputs))


def block_both_ways(block: SamBlock, x: Tensor, run: Callable[[Tensor], Tensor]) -> list[list[Tensor]]:
    """The block's output and the gradients of `x` and of all parameters, plainly and by kernels."""
    results = []
    for block.attn.by_kernels in (False, True):
        leaf = x.detach().requires_grad_()
        out = run(leaf)
        wanted = [leaf, *block.parameters()]
        results.append([out.detach(), *torch.autograd.grad(out.square().mean(), wanted)])
    return results


def random_block(size: SamSize, device: torch.device) -> SamBlock:
    torch.manual_seed(0)
    block = SamBlock(size, window=0)
    torch.nn.init.normal_(block.attn.rel_pos_h, std=0.5)
    torch.nn.init.normal_(block.attn.rel_pos_w, std=0.5)
    return block.to(device)


def test_a_block_both_ways(device: torch.device) -> None:
    block = random_block(NARROW, device)
    plain, ours = block_both_ways(block, torch.randn(2, 6, 6, 64, device=device), block)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_compiled_block_is_one_graph(device: torch.device) -> None:
    block = random_block(NARROW, device)
    run = torch.compile(block.forward, fullgraph=True, backend="aot_eager")
    plain, ours = block_both_ways(block, torch.randn(1, 5, 5, 64, device=device), run)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_tower_takes_the_kernels_where_they_work(monkeypatch: pytest.MonkeyPatch) -> None:
    from data.mini.training import vision

    sam, cpu = vision.Sam(NARROW), torch.device("cpu")
    sam.prepare(cpu)
    assert not any(block.attn.by_kernels for block in sam.blocks)
    monkeypatch.setattr(vision, "works", lambda device: True)
    sam.prepare(cpu)
    assert [block.attn.by_kernels for block in sam.blocks] == [False, True]


def test_where_they_do_not_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*arguments: object) -> str:
        raise RuntimeError("no such registers\nand more")

    asked = works.__wrapped__
    assert not asked(torch.device("cpu"))
    monkeypatch.setattr(agreement, "disagreement", broken)
    assert not asked(torch.device("cuda"))
    monkeypatch.setattr(
        agreement, "disagreement", lambda side, device: f"off at {side}" if side == 64 else ""
    )
    assert not asked(torch.device("cuda"))
    monkeypatch.setattr(agreement, "disagreement", lambda side, device: "")
    assert asked(torch.device("cuda"))
    said = capsys.readouterr().out.splitlines()
    assert said == [f"global attention is torch's own: {why}" for why in ("no such registers", "off at 64")]


def test_every_side_that_the_tower_sees_is_compared_and_has_its_launches() -> None:
    from data.mini.training.grid_kernels import LAUNCHES
    from data.mini.training.views import MODES, PATCH_PX, TILE_PX

    seen = {mode.side // PATCH_PX for mode in MODES} | {TILE_PX // PATCH_PX}
    assert set(agreement.SIDES) == set(LAUNCHES) == seen


def test_disagreement_is_named(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    assert disagreement(6, device, heads=1, width=16) == ""
    monkeypatch.setattr(agreement, "grid_attention", lambda *x: plain_grid_attention(*x[:3], x[4], x[3]))
    assert disagreement(6, device, heads=1, width=16).startswith("output at 6 x 6 is off by ")


class TestOnDevice:
    pytestmark = GPU

    @pytest.mark.parametrize("side", agreement.SIDES)
    def test_rounding_explains_the_distance_from_float32(self, side: int, device: torch.device) -> None:
        assert disagreement(side, device, views=2, heads=3) == ""

    @pytest.mark.parametrize("side", [40, 64])
    def test_equal_inputs_give_equal_gradients(self, side: int, device: torch.device) -> None:
        inputs, d_out = random_case(2, 6, side, 32, torch.bfloat16, device)
        first, second = (with_gradients(grid_attention, inputs, d_out) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))

    @pytest.mark.parametrize("side", [40, 64])
    def test_a_compiled_block_in_a_recording(self, side: int, device: torch.device) -> None:
        """One graph for the compiler, and replayed as it was launched, on other numbers too."""
        size = SamSize(
            width=192, layers=1, heads=6, global_layers=(0,), downsample_channels=(16, 32), grid=64
        )
        block = random_block(size, device)
        block.attn.by_kernels = True
        run = torch.compile(block.forward, fullgraph=True)
        x = torch.randn(2, side, side, 192, device=device)

        def step() -> list[Tensor]:
            with torch.autocast("cuda", torch.bfloat16):
                out = run(x)
            return [out.detach(), *torch.autograd.grad(out.float().square().mean(), list(block.parameters()))]

        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded = step()
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        expected = step()
        for one, other in zip(recorded, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)

        block.attn.by_kernels = False
        with torch.autocast("cuda", torch.bfloat16):
            plain = block(x)
        torch.testing.assert_close(expected[0].float(), plain.float(), rtol=2e-2, atol=2e-2)
