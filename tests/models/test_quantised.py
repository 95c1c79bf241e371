"""Quantised checkpoints: values by each format's definition, packed here by hand, bit by bit."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from safetensors.torch import load_file, save_file

from dsocr_core.base.untrusted import Refused
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.models.config import ConfigError
from dsocr_core.models.family import parse_config
from dsocr_core.models.quantised import values_of
from dsocr_core.models.scheme import scheme_of
from dsocr_core.models.weights import CheckpointError
from dsocr_core.reading.records import OcrRequest
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

Parts = dict[str, torch.Tensor]
Packed = tuple[Parts, np.ndarray]
Packer = Callable[[np.random.Generator, int, int], Packed]
GROUP, BLOCK = 16, (24, 40)
TENSOR = "model.layers.1.self_attn.q_proj.weight"


# --- writers, from the formats' definitions -------------------------------------------------------


def words(rows: np.ndarray, bits: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """(R, C) numbers, `32 / bits` of a row in a word; `order[i]` is the number in the i-th lowest bits."""
    count = 32 // bits
    padded = np.zeros((len(rows), math.ceil(rows.shape[1] / count), count), dtype=np.uint32)
    padded.reshape(len(rows), -1)[:, : rows.shape[1]] = rows
    packed = np.zeros(padded.shape[:2], dtype=np.uint32)
    for i in range(count):
        packed |= padded[:, :, order[i] if order else i] << np.uint32(bits * i)
    return torch.from_numpy(packed.view(np.int32).copy())


def e4m3(byte: int) -> float:
    """One sign, four bits of exponent with bias 7, three of fraction; no infinities."""
    sign, exponent, fraction = -1.0 if byte & 128 else 1.0, byte >> 3 & 15, byte & 7
    return sign * (fraction / 8 * 2.0**-6 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7))


def times(numbers: np.ndarray, scales: np.ndarray, height: int, width: int) -> np.ndarray:
    m, k = np.ogrid[: numbers.shape[0], : numbers.shape[1]]
    return (numbers.astype(np.float64) * scales[m // height, k // width]).astype(np.float32)


def scales_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.uniform(0.5, 2, shape) / 2000).astype(np.float16).astype(np.float32)


def fp8(height: int | None, width: int | None, end: str = "weight_scale") -> Packer:
    """Height and width of blocks; None: all."""

    def pack(rng: np.random.Generator, outputs: int, inputs: int) -> Packed:
        stored = rng.choice([b for b in range(256) if b & 127 != 127], (outputs, inputs)).astype(np.uint8)
        high, wide = height or outputs, width or inputs
        scales = scales_of(rng, math.ceil(outputs / high), math.ceil(inputs / wide))
        numbers = np.array([e4m3(byte) for byte in range(256)])[stored]
        shown = scales.reshape(()) if height is None else scales
        parts = {
            "weight": torch.from_numpy(stored).view(torch.float8_e4m3fn),
            end: torch.from_numpy(shown.copy()),
            "input_scale": torch.ones(1),
        }
        return parts, times(numbers, scales, high, wide)

    return pack


def integers(zero: bool = False, per_tensor: bool = False) -> Packer:
    def pack(rng: np.random.Generator, outputs: int, inputs: int) -> Packed:
        rows = 1 if per_tensor else outputs
        stored = rng.integers(-128, 128, (outputs, inputs)).astype(np.int8)
        scales = scales_of(rng, rows, 1)
        zeros = rng.integers(-128, 128, (rows, 1)).astype(np.int8)
        shape = (1,) if per_tensor else (rows, 1)
        parts = {"weight": torch.from_numpy(stored), "weight_scale": torch.from_numpy(scales.reshape(shape))}
        if zero:
            parts["weight_zero_point"] = torch.from_numpy(zeros.reshape(shape))
        numbers = stored.astype(int) - (zeros.astype(int) if zero else 0)
        return parts, times(numbers, scales, outputs // rows, inputs)

    return pack


def packed(bits: int, group: int | None, zero: bool = False, ordered: bool = False) -> Packer:
    """compressed-tensors: along the inputs, zero points along the outputs, both from the lowest number."""

    def pack(rng: np.random.Generator, outputs: int, inputs: int) -> Packed:
        size = group or inputs
        low, most = -(2 ** (bits - 1)), 2 ** (bits - 1)
        stored = rng.integers(low, most, (outputs, inputs))
        zeros = rng.integers(low, most, (outputs, inputs // size)) if zero else None
        scales = scales_of(rng, outputs, inputs // size)
        of = np.arange(inputs) // size
        if ordered:
            of = rng.permutation(of)
        parts = {
            "weight_packed": words(stored - low, bits),
            "weight_shape": torch.tensor([outputs, inputs]),
            "weight_scale": torch.from_numpy(scales).bfloat16(),
        }
        scales = parts["weight_scale"].float().numpy()
        if zeros is not None:
            parts["weight_zero_point"] = words((zeros - low).T, bits).T.contiguous()
        if ordered:
            parts["weight_g_idx"] = torch.from_numpy(of.astype(np.int32))
        numbers = stored if zeros is None else stored - zeros[:, of]
        return parts, numbers.astype(np.float32) * scales[:, of]

    return pack


def by_inputs(bits: int, less: int = 0, order: str = "", group: int | None = GROUP) -> Packer:
    """GPTQ (numbers of eight or four inputs in a word) and AWQ (of eight outputs, in an order of its own)."""
    awq = (0, 2, 4, 6, 1, 3, 5, 7)

    def pack(rng: np.random.Generator, outputs: int, inputs: int) -> Packed:
        groups = math.ceil(inputs / (group or inputs))
        stored = rng.integers(0, 2**bits, (inputs, outputs))
        zeros = rng.integers(less, 2**bits, (groups, outputs))
        scales = scales_of(rng, groups, outputs)
        of = np.arange(inputs) // (group or inputs)
        if order == "any":
            of = rng.integers(0, groups, inputs)
        parts = {
            "qweight": words(stored, bits, awq) if order == "awq" else words(stored.T, bits).T.contiguous(),
            "qzeros": words(zeros - less, bits, awq if order == "awq" else None),
            "scales": torch.from_numpy(scales).half(),
        }
        if order == "any":
            parts["g_idx"] = torch.from_numpy(of.astype(np.int32))
        return parts, np.ascontiguousarray(((stored - zeros[of]).astype(np.float32) * scales[of]).T)

    return pack


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int"} | weights}}
    return {
        "quant_method": "compressed-tensors", "format": form, "config_groups": groups,
        "ignore": ["lm_head", "re:.*vision.*"], "sparsity_config": {}, "kv_cache_scheme": None,
    }  # fmt: skip


def gptq(bits: int, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "sym": False, "lm_head": False} | more


INT4 = {"num_bits": 4, "strategy": "group", "group_size": GROUP}
ZEROS = INT4 | {"symmetric": False}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
CASES: dict[str, tuple[dict[str, Any], Packer, str]] = {
    "fp8 a tensor": (FP8, fp8(None, None), "fp8"),
    "fp8 a channel": (FP8, fp8(1, None), "fp8"),
    "fp8 blocks": (FP8 | {"weight_block_size": [*BLOCK]}, fp8(*BLOCK, "weight_scale_inv"), "fp8"),
    "floats": (compressed("float-quantized", type="float", strategy="channel"), fp8(1, None),
               "compressed-tensors float-quantized float8"),
    "float blocks": (
        compressed("naive-quantized", type="float", strategy="block", block_structure=[*BLOCK]), fp8(*BLOCK),
        "compressed-tensors naive-quantized float8",
    ),
    "int8": (compressed("int-quantized", strategy="channel"), integers(),
             "compressed-tensors int-quantized int8"),
    "int8 with zeros": (compressed("naive-quantized", group_size=-1), integers(zero=True),
                        "compressed-tensors naive-quantized int8"),
    "int8 a tensor": (compressed("int-quantized"), integers(zero=True, per_tensor=True),
                      "compressed-tensors int-quantized int8"),
    "packed int4": (compressed("pack-quantized", **INT4), packed(4, GROUP),
                    "compressed-tensors pack-quantized int4"),
    "packed int4 with zeros": (compressed("pack-quantized", **ZEROS), packed(4, GROUP, zero=True),
                               "compressed-tensors pack-quantized int4"),
    "packed int4 in an order": (compressed("pack-quantized", actorder="group", **ZEROS),
                                packed(4, GROUP, zero=True, ordered=True),
                                "compressed-tensors pack-quantized int4"),
    "packed int8": (compressed("pack-quantized", strategy="channel", symmetric=False),
                    packed(8, None, zero=True),
                    "compressed-tensors pack-quantized int8"),
    "gptq 4": (gptq(4), by_inputs(4, less=1), "gptq int4"),
    "gptq 8 in any order": (gptq(8, desc_act=True), by_inputs(8, 1, "any"), "gptq int8"),
    "gptq 4, one group": (gptq(4, group_size=-1), by_inputs(4, 1, group=None), "gptq int4"),
    "gptq v2": (gptq(4, checkpoint_format="gptq_v2"), by_inputs(4), "gptq int4"),
    "awq": (AWQ, by_inputs(4, order="awq"), "awq int4"),
}  # fmt: skip
"""By name: quantization_config, writer, and the scheme's title."""


def read(config: dict[str, Any], parts: Parts, shape: tuple[int, int]) -> torch.Tensor:
    def take(name: str, kinds: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> torch.Tensor:
        tensor = parts[name.removeprefix("x.")]
        assert tuple(tensor.shape) in shapes, (name, tensor.shape, shapes)
        return tensor

    scheme = scheme_of(config)
    names = {f"x.{end}" for end in parts}
    return values_of(scheme, shape, scheme.of("x.weight", names), take)


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    outputs=st.integers(1, 7).map(lambda n: 8 * n), groups=st.integers(1, 4), seed=st.integers(0, 2**32 - 1)
)
def test_values_are_those_of_the_definition(case: str, outputs: int, groups: int, seed: int) -> None:
    config, pack, title = CASES[case]
    parts, values = pack(np.random.default_rng(seed), outputs, groups * GROUP)
    np.testing.assert_array_equal(read(config, parts, values.shape).numpy(), values)
    assert scheme_of(config).title == title


def test_inputs_that_end_inside_a_group_or_a_word() -> None:
    # GPTQ's last group is short; compressed-tensors pads the last word of a row of 20 and of 5 outputs.
    for config, pack, shape in (
        (gptq(4), by_inputs(4, 1), (8, 24)),
        (
            compressed("pack-quantized", num_bits=4, strategy="channel", symmetric=False),
            packed(4, None, zero=True),
            (5, 20),
        ),
    ):
        parts, values = pack(np.random.default_rng(3), *shape)
        np.testing.assert_array_equal(read(config, parts, shape).numpy(), values)


# --- whole checkpoints ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeded_checkpoint(tiny_config(), tmp_path_factory.mktemp("plain") / "m", torch.float32)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    picture = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(picture).text((20, 20), "Hello page", fill="black")
    picture.save(file := tmp_path_factory.mktemp("page") / "page.png")
    return file


@cache
def weights_in(plain: Path, case: str) -> dict[str, torch.Tensor | Packed]:
    """The tiny checkpoint's weights, its projections in parts and with their values: packed once a case."""
    rng, pack = np.random.default_rng(7), CASES[case][1]
    tensors = {n: t for file in sorted(plain.glob("*.safetensors")) for n, t in load_file(file).items()}
    return {
        name: pack(rng, *tensor.shape) if "_proj.weight" in name and "vision" not in name else tensor
        for name, tensor in tensors.items()
    }


def stored(plain: Path, target: Path, case: str, **change: torch.Tensor | None) -> tuple[Path, Path]:
    """The tiny checkpoint in a scheme, and with the values of that; `change` is of TENSOR's parts.

    Parts of a weight lie in two files.
    """
    files: dict[str, tuple[Parts, Parts]] = {"few": ({}, {}), "values": ({}, {})}
    for name, weight in weights_in(plain, case).items():
        if isinstance(weight, torch.Tensor):
            files["few"][0][name] = files["values"][0][name] = weight
            continue
        parts, values = weight
        files["values"][0][name] = torch.from_numpy(values)
        if name == TENSOR:
            parts = {end: part for end, part in (parts | change).items() if part is not None}
        for number, (end, part) in enumerate(parts.items()):
            files["few"][number % 2][name.removesuffix("weight") + end] = part
    for name, shards in files.items():
        shutil.copytree(plain, target / name, ignore=shutil.ignore_patterns("*.safetensors*", "*.py"))
        index = {}
        for number, shard in enumerate(shards):
            save_file(shard, target / name / f"{number}.safetensors")
            index |= dict.fromkeys(shard, f"{number}.safetensors")
        (target / name / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    written = json.loads((plain / "config.json").read_text()) | {"quantization_config": CASES[case][0]}
    (target / "few" / "config.json").write_text(json.dumps(written))
    return target / "few", target / "values"


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_reads_like_one_of_its_values(
    plain: Path, page: Path, tmp_path: Path, case: str
) -> None:
    few, values = (
        load_checkpoint(str(directory), torch.device("cpu"), torch.float32)
        for directory in stored(plain, tmp_path, case)
    )
    weights = few.model.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in values.model.state_dict().items())
    request = OcrRequest(page, "tiny", max_new_tokens=1)
    words = f"{CASES[case][2]} of the checkpoint, values in float32"
    assert EagerEngine(few).recognize(request).environment["quantisation"] == words
    if case == next(iter(CASES)):
        assert "quantisation" not in EagerEngine(values).recognize(request).environment


BAD = {
    "no scale": ("int8", {"weight_scale": None},
                 r"0\.safetensors: \S+q_proj\.weight is stored as I8 without a scale"),
    "two scales": ("fp8 a tensor", {"weight_scale_inv": torch.ones(1)}, r"weight has no scale, or two"),
    "a scale of another shape": ("int8", {"weight_scale": torch.ones(3, 1)},
                                 r"1\.safetensors: \S+weight_scale is \[3, 1\], compr.* has \[64, 1\]"),
    "a scale in 8 bits": ("int8", {"weight_scale": torch.ones(64, 1, dtype=torch.uint8)},
                          "stored as U8, not F32"),
    "no numbers": ("gptq 4", {"qweight": None}, r"is there without its qweight"),
    "no zero points of one's own": ("packed int4 with zeros", {"weight_zero_point": None},
                                    "is there without its weight_zero_point"),
    "zero points of nobody": ("packed int4", {"weight_zero_point": torch.zeros(8, 4, dtype=torch.int32)},
                              r"1 unexpected \(\S+weight_zero_point"),
    "no order": ("gptq 8 in any order", {"g_idx": None}, "is there without its g_idx"),
    "no order of its groups": ("packed int4 in an order", {"weight_g_idx": None}, "without its weight_g_idx"),
    "no zero points": ("awq", {"qzeros": None}, r"is there without its qzeros"),
    "numbers of another size": ("gptq 4", {"qweight": torch.zeros(7, 64, dtype=torch.int32)},
                                r"qweight is \[7, 64\], gptq int4 has \[8, 64\]"),
    "a weight and its parts": ("awq", {"weight": torch.ones(64, 64)}, r"1 unexpected \(\S+q_proj.weight\)"),
    "another shape": ("packed int4", {"weight_shape": torch.tensor([2**40, -1])},
                      r"is \[1099511627776, -1\] by its weight_shape, config says \[64, 64\]"),
    "groups that are not there": ("gptq 8 in any order", {"g_idx": torch.full((64,), 4, dtype=torch.int32)},
                                  "g_idx beyond its 4 groups"),
    "groups below 0": ("gptq 8 in any order", {"g_idx": torch.full((64,), -1, dtype=torch.int32)},
                       "g_idx beyond its 4 groups"),
    "groups of two sizes": ("packed int4 in an order", {"weight_g_idx": torch.zeros(64, dtype=torch.int32)},
                            "weight_g_idx that is not 4 groups of one size"),
    "a zero point of 0": ("gptq 4", {"qzeros": torch.full((4, 8), -1, dtype=torch.int32)}, "give gptq_v2"),
    "another type": ("fp8 a tensor", {"weight": torch.ones(64, 64, dtype=torch.int8)},
                     "stored as I8, not F8_E4M3"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_what_does_not_fit_is_refused_in_one_line(plain: Path, tmp_path: Path, bad: str) -> None:
    case, change, says = BAD[bad]
    few, _ = stored(plain, tmp_path, case, **change)
    with pytest.raises(CheckpointError, match=says) as error:
        load_checkpoint(str(few), torch.device("cpu"), torch.float32)
    assert "\n" not in str(error.value) and str(few) in str(error.value)


def test_a_part_that_its_file_lacks_is_refused(plain: Path, tmp_path: Path) -> None:
    few, _ = stored(plain, tmp_path, "awq")
    index = json.loads((few / "model.safetensors.index.json").read_text())
    index["weight_map"][TENSOR.replace("weight", "scales")] = "1.safetensors"
    (few / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"1\.safetensors: cannot be read as safetensors"):
        load_checkpoint(str(few), torch.device("cpu"), torch.float32)


# --- quantization_config --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        *(({"quant_method": name}, f"is {name!r}, which is not read") for name in
          ("gguf", "bitsandbytes", "hqq", "fbgemm_fp8", "modelopt", "a\nb")),
        ({"bits": 4}, "is of no name"),
        ([1], "is of no name"),
        (FP8 | {"weight_block_size": [128]}, "is fp8 with blocks of [128]"),
        (FP8 | {"weight_block_size": [0, True]}, "is fp8 with a size of 0"),
        (compressed("marlin-24"), "is compressed-tensors 'marlin-24'"),
        (compressed("mixed-precision"), "is compressed-tensors 'mixed-precision'"),
        (compressed("nvfp4-pack-quantized"), "is compressed-tensors 'nvfp4-pack-quantized'"),
        (compressed("int-quantized", strategy="tensor_group", group_size=16), "with strategy 'tensor_group'"),
        (compressed("int-quantized", type="float"), "of 'float' with 8 bits"),
        (compressed("pack-quantized", num_bits=3), "of 'int' with 3 bits"),
        (compressed("int-quantized") | {"config_groups": {}}, "of no, or of several, kinds"),
        (compressed("int-quantized") | {"config_groups": {"W8A8": ["Linear"]}}, "modules without weights"),
        (compressed("int-quantized") | {"sparsity_config": {"format": "sparse-bitmask"}}, "sparsity_config"),
        (compressed("int-quantized") | {"transform_config": {"config_groups": {}}}, "transform_config"),
        (gptq(3), "is gptq with 3 bits"),
        (gptq(4, group_size=0), "is gptq with a size of 0"),
        (gptq(4, checkpoint_format="marlin"), "is gptq in the format 'marlin'"),
        (AWQ | {"version": "gemv"}, "is awq in the format 'gemv'"),
        (AWQ | {"backend": "llm-awq"}, "is awq in the format 'llm-awq'"),
        (AWQ | {"bits": 8}, "is awq with 8 bits"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_refused_by_name(given: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(tiny_config() | {"quantization_config": given}, "dir/config.json")
    text = str(error.value)
    assert text.startswith("dir/config.json: quantization_config is ") and says in text
    assert "\n" not in text and "endpoint:URL" in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(
        ["group", "float", "int", "pack-quantized", "int-quantized", "gptq_v2", "gemm"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["weights", "type", "num_bits", "strategy", "group_size"]), inner, max_size=4
    ),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.fixed_dictionaries(
        {"quant_method": st.sampled_from(["fp8", "compressed-tensors", "gptq", "awq"]) | JSON},
        optional=dict.fromkeys(
            ["bits", "group_size", "format", "checkpoint_format", "version", "backend", "weight_block_size",
             "config_groups", "sparsity_config"], JSON
        ) | {"config_groups": st.dictionaries(st.text(), JSON, max_size=2)},
    )
)  # fmt: skip
def test_any_config_is_a_scheme_or_one_line(given: dict[str, Any]) -> None:
    try:
        scheme_of(given)
    except Refused as error:
        assert "\n" not in str(error) and len(str(error)) < 200
