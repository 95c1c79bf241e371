"""config.json: the published sizes are read, and every damage is told with its file and field."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.models.config import ClipConfig, ConfigError, DecoderConfig, ProjectorConfig, SamConfig
from dsocr_core.models.family import load_config, parse_config
from tests.support.paths import PUBLISHED, ROOT

MINI = ROOT / "data" / "mini" / "config.json"


@pytest.fixture
def data() -> dict[str, Any]:
    return json.loads(MINI.read_text(encoding="utf-8"))


def change(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one field set, or removed when the value is `...`."""
    data = copy.deepcopy(data)
    *parents, last = path.split("/")
    place = data
    for key in parents:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


def test_the_published_config_gives_the_published_sizes() -> None:
    config = load_config(PUBLISHED)
    assert config.sam == SamConfig(768, 12, 12, (2, 5, 8, 11), (512, 1024), 1024)
    assert config.clip == ClipConfig(1024, 24, 16, 224, 14)
    assert config.projector == ProjectorConfig(2048, 1280)
    assert config.decoder == DecoderConfig(129280, 1280, 12, 10, 6848, 896, 64, 6, 2, 1, 8192, 0, 1)
    assert (config.sam.grid, config.sam.head_dim, config.sam.mlp_width) == (64, 64, 3072)
    assert (config.sam.window, config.sam.neck_channels, config.sam.layer_norm_eps) == (14, 256, 1e-6)
    assert (config.clip.positions, config.clip.mlp_width, config.clip.layer_norm_eps) == (257, 4096, 1e-5)
    assert (config.decoder.head_dim, config.decoder.shared_width) == (128, 1792)
    assert config.decoder.is_dense(0) and not config.decoder.is_dense(1)


def test_fields_may_be_absent_or_say_what_is_computed(data: dict[str, Any]) -> None:
    expected = parse_config(data)
    assert load_config(MINI) == load_config(MINI.parent) == expected
    fields = data["language_config"]
    nested = {name: value for name, value in data.items() if name not in fields} | {"language_config": fields}
    assert parse_config(nested) == expected
    for value, most in ((..., None), (None, None), (77, 77)):
        assert parse_config(change(data, "max_position_embeddings", value)).decoder.max_positions == most
    more = {
        "norm_topk_prob": False, "scoring_func": "softmax", "n_group": None, "moe_layer_freq": 1,
        "hidden_act": "silu", "rope_scaling": None, "rope_parameters": {"rope_type": "default"},
        "sliding_window": 4096, "use_sliding_window": False, "head_dim": expected.decoder.head_dim,
    }  # fmt: skip
    assert parse_config(data | more) == expected


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("vision_config", ..., "vision_config is missing"),
        ("vision_config/width/sam_vit_b/heads", "12", "vision_config.width.sam_vit_b.heads is '12'"),
        ("vision_config/width/sam_vit_b/heads", 0, "expected an integer from 1"),
        ("vision_config/width/sam_vit_b/heads", 7, "sam_vit_b.width is not a multiple of heads"),
        ("vision_config/width/sam_vit_b/downsample_channels", [1, 2, 3], "expected two sizes"),
        ("vision_config/width/sam_vit_b/downsample_channels", [1, 2], "is not clip's width"),
        ("vision_config/width/sam_vit_b/global_attn_indexes", [1.5], "expected a list of integers"),
        ("vision_config/width/clip-l-14-224/heads", 1000, "clip-l-14-224.width is not a multiple"),
        ("vision_config/image_size", 100, "vision_config.image_size is not n x 64"),
        ("projector_config/projector_type", "mlp_gelu", "only linear is supported"),
        ("projector_config/input_dim", 5, "is not twice clip's width"),
        ("projector_config/n_embed", 5, "n_embed is not hidden_size"),
        ("use_mla", True, "use_mla is True; only False is supported"),
        ("quantization_config", {"quant_method": "fp8"}, "'fp8'}; give one in bfloat16, or serve this one"),
        ("norm_topk_prob", True, "norm_topk_prob is True; only False"),
        ("scoring_func", "sigmoid", "scoring_func is 'sigmoid'; only 'softmax'"),
        ("hidden_act", "gelu", "hidden_act is 'gelu'; only 'silu'"),
        ("rope_scaling", {"type": "yarn", "factor": 4}, "only plain rotary positions"),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 5}, "only plain rotary positions"),
        ("rope_scaling", "yarn", "only plain rotary positions"),
        ("sliding_window", 128, "sliding_window is 128"),
        ("head_dim", 32, "head_dim is 32"),
        ("language_config/scoring_func", "sigmoid", "language_config.scoring_func is 'sigmoid'"),
        ("num_hidden_layers", ..., "num_hidden_layers is missing; is this a DeepSeek-OCR checkpoint?"),
        ("num_key_value_heads", 1, "num_key_value_heads differs"),
        ("num_experts_per_tok", 10_000, "num_experts_per_tok exceeds"),
        ("num_attention_heads", 100_000, "is not even"),
        ("eos_token_id", None, "eos_token_id is None"),
        ("routed_scaling_factor", None, "routed_scaling_factor is None"),
    ],
)
def test_every_damage_names_its_field(data: dict[str, Any], path: str, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(change(data, path, value), "dir/config.json")
    message = str(error.value)
    assert message.startswith("dir/config.json: ") and problem in message and "\n" not in message


@pytest.mark.parametrize("foreign", [[], "text", 5, None, {"model_type": "llama", "hidden_size": 8}])
def test_a_foreign_config_is_an_error_that_names_the_file(foreign: Any) -> None:
    with pytest.raises(ConfigError, match=r"^config\.json: "):
        parse_config(foreign)


def test_what_is_no_json_is_one_line_and_is_neither_waited_for_nor_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "config.json"

    def huge() -> None:
        with file.open("wb") as handle:
            handle.truncate(2**40)  # takes no room on the disk

    contents = [
        (lambda: None, r"no config\.json here"), (file.mkdir, "cannot be read"),
        (lambda: os.mkfifo(file), "not a regular"), (lambda: file.symlink_to("/dev/zero"), "not a regular"),
        (huge, "1,099,511,627,776 bytes; at most"),
    ]  # fmt: skip
    damaged = [(b"{", "not valid JSON"), (b"", "empty"), (b"\xff\xff{}", "not valid JSON")]
    nested = ("[" * 100_000, '{"a":' * 900 + "1" + "}" * 900, '{"a": ' + "[" * 200 + "]" * 200 + "}")
    damaged += [(text.encode(), r"deep|not valid") for text in nested]
    contents += [(lambda content=content: file.write_bytes(content), cause) for content, cause in damaged]
    for write, cause in contents:
        write()
        with pytest.raises(ConfigError, match=cause) as error:
            load_config(tmp_path)
        assert str(file) in str(error.value)
        file.rmdir() if file.is_dir() else file.unlink(missing_ok=True)
