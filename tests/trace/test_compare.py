"""Figures of pairs of tensors against values worked out by hand, and dumps that others wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.taps.files import Dump, Recorder, fingerprint
from dsocr_core.reading.jsonable import from_jsonable, to_jsonable
from dsocr_core.reading.trace_records import TraceSummary, block_errors
from dsocr_core.trace.compare import compare_tensors
from dsocr_core.trace.run import compare_directories


def bf16(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.bfloat16)


def test_a_ulp_of_bfloat16_is_a_hundred_and_twenty_eighth_of_its_power_of_two() -> None:
    row, _ = compare_tensors(bf16(1.0, -1.0, 4.0), bf16(1.0 + 1 / 128, -1.0, 4.0 + 3 * 4 / 128))
    # The std of 1, -1, 4 is 2.05: at 1 its unit, 2/128, is what counts, so that half of it rounds up to 1.
    assert (row.max_ulp, row.differing_share) == (3, pytest.approx(2 / 3))
    assert row.relative_to_std == pytest.approx((3 * 4 / 128) / 2.0548, rel=1e-3)


def test_error_is_the_root_mean_square_over_the_std() -> None:
    a, b = (
        torch.tensor([[0.0, 2.0]]),
        torch.tensor([[0.0, 2.5]]),
    )  # std 1, rms of the difference 0.5 / sqrt(2)
    row, _ = compare_tensors(a, b)
    assert row.error == pytest.approx(0.5 / 2**0.5) and row.relative_to_std == pytest.approx(0.5)
    assert row.max_ulp == 0.5 / 2**-22  # at 2.5 a unit of float32 is 2^-22


def test_both_zeros_and_two_nans_are_equal_and_one_nan_is_not() -> None:
    nan = float("nan")
    row, _ = compare_tensors(bf16(0.0, nan), bf16(-0.0, nan))
    assert not row.differs
    row, _ = compare_tensors(bf16(1.0, nan), bf16(1.0, 2.0))
    assert row.differing_share == 0.5 and row.max_ulp is None


def test_float32_is_compared_as_the_other_side_would_have_stored_it() -> None:
    exact = torch.tensor([[1.0 + 1e-4, 3.0]])
    row, _ = compare_tensors(exact, bf16(1.0, 3.0))
    assert not row.differs and (row.dtype_a, row.dtype_b) == ("float32", "bfloat16")


def test_of_a_shorter_sequence_the_last_rows_are_compared() -> None:
    rows = torch.arange(6.0).view(3, 2)
    assert not compare_tensors(rows, rows[-1:], "decoder.layer5.out")[0].differs
    assert compare_tensors(rows, rows[:1], "decoder.layer5.out")[0].differs
    assert compare_tensors(rows, rows[-1:], "clip.block0.out")[0].differing_share == 1.0


@pytest.mark.parametrize("size", [0, 1, 65_520, 65_521, 65_522, 131_045])
def test_a_fingerprint_is_the_sum_and_the_sum_weighted_by_place(size: int) -> None:
    weight = torch.randn(size, generator=torch.Generator().manual_seed(size))
    bits = weight.view(torch.int32).tolist()
    weighted = sum(value * (place % 65_521 + 1) for place, value in enumerate(bits))
    assert fingerprint(weight) == f"{sum(bits) % 2**64:016x}{weighted % 2**64:016x}"


# --- dumps ----------------------------------------------------------------------------------------


def test_a_dump_gives_back_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr_core.models.taps.files.BUFFER_BYTES", 20)
    writer = Recorder(tmp_path, {"backend": "mine", "versions": {"torch": "1"}})
    first = torch.tensor([[1.5, 2.5]], dtype=torch.bfloat16)
    writer.begin_call()
    writer.write("sam.out", first)
    writer.write("projector", torch.arange(6.0).view(2, 3).t())  # not contiguous
    writer.begin_call()
    writer.write("logits", first)
    first += 1  # what was written is a copy
    writer.close(token_ids=[3])
    dump = Dump(tmp_path)
    assert dump.calls == 2 and list(dump.keys(0)) == ["sam.out", "projector"]
    assert dump.tensor(1, "logits").tolist() == [[1.5, 2.5]]
    assert dump.tensor(0, "projector").tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert dump.about["backend"] == "mine" and dump.about["token_ids"] == [3]
    with pytest.raises(ValueError, match="already"):
        writer.write("logits", first)


def foreign(directory: Path, **tensors: torch.Tensor) -> Path:
    """A dump as another engine may leave it: one safetensors file, no index."""
    directory.mkdir()
    named = {name.replace("_", "."): tensor for name, tensor in tensors.items()}
    save_file({name: tensor.clone() for name, tensor in named.items()}, directory / "step0.safetensors")
    return directory


def test_dumps_made_elsewhere_are_compared_by_name(tmp_path: Path) -> None:
    x = torch.randn(20, 8, generator=torch.Generator().manual_seed(1))
    a = Recorder(tmp_path / "a", {"backend": "eager"})
    a.begin_call()
    for name in ("decoder.layer3.norm1", "decoder.layer3.out", "decoder.layer11.out"):
        a.write(name, x)
    a.close()
    changed = x.clone()
    changed[:, 2] += 1.0
    ours = {"decoder_layer3_norm1": x, "decoder_layer3_out": x, "decoder_layer11_out": changed}
    found = compare_directories(tmp_path / "a", foreign(tmp_path / "b", **ours))
    assert (found.compared, found.differing) == (3, 1)
    assert found.first is not None and found.first.name == "decoder.layer11.out"
    assert found.first.differing_share == pytest.approx(1 / 8)


def test_without_known_weights_one_channel_points_at_a_weight_and_growth_at_a_mask(tmp_path: Path) -> None:
    x = torch.randn(64, 100, generator=torch.Generator().manual_seed(2))
    one_channel, growing = x.clone(), x.clone()
    one_channel[:, 7] += 0.3
    growing += torch.linspace(0, 1, 64)[:, None] * torch.randn(64, 100)
    a = foreign(tmp_path / "a", **{"decoder_layer0_attn": x})
    for name, changed, kind in (("b", one_channel, "weights"), ("c", growing, "mask_or_positions")):
        found = compare_directories(a, foreign(tmp_path / name, **{"decoder_layer0_attn": changed}))
        assert [cause.kind for cause in found.causes] == [kind]


def test_a_directory_that_is_no_dump_is_refused_with_its_file_named(tmp_path: Path) -> None:
    files = (json.dumps({"calls": [{"files": [f"{name}.safetensors"]}]}) for name in ("../x", "none"))
    for index in ("{", "[]", *files):
        (tmp_path / "trace.json").write_text(index)
        with pytest.raises(DsocrError, match=str(tmp_path)):
            Dump(tmp_path)


# --- the curve ------------------------------------------------------------------------------------


def test_the_curve_has_the_error_that_each_block_gives(tmp_path: Path) -> None:
    x = torch.tensor([[0.0, 2.0]])  # std 1
    a = foreign(tmp_path / "a", sam_block0_out=x, sam_block1_mlp=x, sam_block1_out=x)
    b = foreign(tmp_path / "b", sam_block0_out=x + 0.5, sam_block1_mlp=x, sam_block1_out=x + 0.75)
    summary = compare_directories(a, b)
    curve = block_errors(summary)
    assert list(curve) == ["sam.block0", "sam.block1"]
    first, second = curve["sam.block0"][0], curve["sam.block1"][0]
    assert (first.error, second.error) == (pytest.approx(0.5), pytest.approx(0.75))
    assert (second.outputs, second.differing) == (2, 1)
    assert from_jsonable(TraceSummary, json.loads(json.dumps(to_jsonable(summary)))) == summary
