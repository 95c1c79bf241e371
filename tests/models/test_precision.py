"""What a rung's weights are worth, by hand; and that all other weights stay."""

from __future__ import annotations

import pytest
import torch

from dsocr_core.models.family import parse_config
from dsocr_core.models.precision import (
    decoder_bytes,
    fp8_channels,
    int_groups,
    position_bytes,
    round_weights,
    weight_bits,
)
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config

CPU = torch.device("cpu")


def test_an_output_of_fp8_has_a_scale_of_its_own() -> None:
    # Scales 1 and 1/448: 17 lies between 16 and 18, to the even one; the second row ends at 1.
    weight = torch.tensor([[448.0, 17.0, -1.0625], [1.0, 0.5, 0.0]])
    wanted = torch.tensor([[448.0, 16.0, -1.0], [1.0, 0.5, 0.0]])
    torch.testing.assert_close(fp8_channels(weight), wanted)


def test_a_group_of_int4_has_a_scale_of_its_own() -> None:
    # Groups of 2: scales 1 and 2, the last group one input short.
    weight = torch.tensor([[7.0, 2.4, -14.0, 5.1, 3.0]])
    scale = torch.tensor(3.0 / 7).bfloat16().float()
    wanted = torch.tensor([[7.0, 2.0, -14.0, 6.0, 7 * scale]])
    torch.testing.assert_close(int_groups(weight, 4, group=2), wanted)


def test_int8_keeps_more_than_int4_and_both_keep_zeros() -> None:
    weight = torch.randn(8, 100, generator=torch.Generator().manual_seed(0))
    errors = [float((int_groups(weight, bits) - weight).abs().max()) for bits in (8, 4)]
    assert errors[0] < 0.02 < errors[1] < 0.4
    assert not int_groups(torch.zeros(2, 64), 4).any() and not fp8_channels(torch.zeros(2, 64)).any()


@pytest.mark.parametrize("precision", ["off", "fp8-kv", "fp8-experts", "fp8-linears", "int8", "int4"])
def test_a_rung_rounds_its_projections_alone(precision: str) -> None:
    config = parse_config(tiny_config())
    model, before = (random_model(config, CPU, torch.float32) for _ in range(2))
    round_weights(model.decoder, precision)  # type: ignore[arg-type]
    changed = {
        name
        for (name, new), old in zip(
            model.decoder.named_parameters(), before.decoder.parameters(), strict=True
        )
        if not torch.equal(new, old)
    }
    names = {name for name, _ in model.decoder.named_parameters() if "_proj" in name}
    experts = {name for name in names if ".experts." in name}
    assert changed == {"off": set(), "fp8-kv": set(), "fp8-experts": experts}.get(precision, names)


def test_bits_and_bytes_by_hand() -> None:
    matrix = torch.zeros(2, 64, dtype=torch.bfloat16)
    bits = [weight_bits("q_proj", matrix, rung) for rung in ("off", "fp8-linears", "int8", "int4")]  # type: ignore[arg-type]
    assert bits == [16, 8.5, 8.25, 4.25]
    assert weight_bits("mlp.gate.weight", matrix, "int4") == 16
    decoder = torch.nn.ModuleDict({"mlp": torch.nn.ModuleDict({"experts": torch.nn.Module()})})
    decoder["mlp"]["experts"].up_proj = torch.nn.Parameter(torch.zeros(4, 2, 64))  # type: ignore[index]
    assert decoder_bytes(decoder, "off") == 4 * 2 * 64 * 4
    assert decoder_bytes(decoder, "int4", (1, 4)) == 2 * 64 * 4.25 / 8


def test_a_position_of_the_published_cache() -> None:
    config = parse_config(tiny_config()).decoder
    numbers = config.layers * config.heads * config.head_dim
    sizes = [position_bytes(config, torch.bfloat16, rung) for rung in ("off", "fp8-v", "fp8-kv", "int4")]  # type: ignore[arg-type]
    assert sizes == [4 * numbers, 3 * numbers, 2 * numbers, 4 * numbers]
