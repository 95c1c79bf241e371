"""Model sizes as frozen dataclasses, read from a checkpoint's `config.json`.

The published code hard-codes the sizes of its towers and ignores the file's. Here all are read from it, so
that one code path runs the published, the embedded and the test checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.resolution import DOWNSAMPLE_RATIO, PATCH_SIZE

QUANTISED_ADVICE = "give one in bfloat16, or serve this one and read it as endpoint:URL"
"""Advice for a checkpoint with quantised weights."""
WINDOW_FIELDS = ("sliding_window_size", "sliding_window")
"""Names that config.json may use for the window of the decoder's attention."""
"""Names of the decoder's window; the first that is not 0 counts."""
COMPUTED: Mapping[str, tuple[Any, ...]] = {
    "use_mla": (False,), "q_lora_rank": (0,), "kv_lora_rank": (0,),
    "norm_topk_prob": (False,), "scoring_func": ("softmax",), "topk_method": ("greedy",),
    "n_group": (1,), "topk_group": (1,), "moe_layer_freq": (1,), "hidden_act": ("silu", "swish"),
    "attention_bias": (False,), "mlp_bias": (False,), **dict.fromkeys(WINDOW_FIELDS, (0,)),
}  # fmt: skip
"""Fields that change the decoder's arithmetic, with the values that our engines and FLOPs support. A field
that is null or missing has the first value."""
_SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok", "n_shared_experts",
    "first_k_dense_replace",
)  # fmt: skip
_FROM_0 = ("first_k_dense_replace", "bos_token_id", "eos_token_id")
_MOST = {"layers": 1000, "num_hidden_layers": 1000, "n_routed_experts": 10_000}
_MOST_ELSE = 2**24
"""Upper limit of all other sizes."""


class ConfigError(DsocrError):
    """A config.json that is missing, foreign or inconsistent. Names the file and the field."""


@dataclass(frozen=True)
class Tower:
    """Sizes of a transformer."""

    width: int
    layers: int
    heads: int

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def mlp_width(self) -> int:
        """Width of the feed-forward. The published code ignores the file's `vision_config.mlp_ratio`."""
        return 4 * self.width


@dataclass(frozen=True)
class SamConfig(Tower):
    """Sizes of SAM, a ViT with window attention. `image_size` sets the position table's grid."""

    global_attn_indexes: tuple[int, ...]
    downsample_channels: tuple[int, int]
    image_size: int
    patch_size: int = PATCH_SIZE
    window: int = 14
    neck_channels: int = 256
    layer_norm_eps: float = 1e-6

    @property
    def grid(self) -> int:
        """Patches along a side of the position table."""
        return self.image_size // self.patch_size


@dataclass(frozen=True)
class ClipConfig(Tower):
    """Sizes of CLIP, a ViT over SAM's output. `positions` counts the class token."""

    image_size: int
    patch_size: int
    layer_norm_eps: float = 1e-5

    @property
    def positions(self) -> int:
        return (self.image_size // self.patch_size) ** 2 + 1


@dataclass(frozen=True)
class Qwen2Config(Tower):
    """Sizes of a Qwen2 decoder as an encoder. All but the width are those of the published code."""

    layers: int = 24
    heads: int = 14
    kv_heads: int = 2
    mlp_width: int = 4864
    queries: tuple[int, int] = (144, 256)
    """Numbers of learned queries, of a view of 768 pixels and of one of 1024."""
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1_000_000.0


@dataclass(frozen=True)
class ProjectorConfig:
    input_dim: int
    output_dim: int


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a DeepSeek-V2 style decoder with plain multi-head attention and a mixture of experts."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    moe_intermediate_size: int
    routed_experts: int
    experts_per_token: int
    shared_experts: int
    first_dense_layers: int
    max_positions: int | None
    """Context limit in tokens; None where the file names none."""
    bos_token_id: int
    eos_token_id: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    routed_scaling_factor: float = 1.0
    window: int | None = None
    """New tokens, itself included, that a token sees after the whole prompt; None for all."""

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.heads

    @property
    def shared_width(self) -> int:
        return self.moe_intermediate_size * self.shared_experts

    def is_dense(self, layer: int) -> bool:
        return layer < self.first_dense_layers


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model. It has one of the two second encoders."""

    sam: SamConfig
    projector: ProjectorConfig
    decoder: DecoderConfig
    clip: ClipConfig | None = None
    encoder: Qwen2Config | None = None
    family: str = "deepseek_ocr"
    """Name of its row in `models.family`."""


def shared_sizes(root: Section, window: bool = False) -> tuple[SamConfig, ProjectorConfig, DecoderConfig]:
    """Sizes that all models have. Raises ConfigError for values that no model here supports."""
    vision, projector = root.section("vision_config"), root.section("projector_config")
    tower, kind = vision.section("width").section("sam_vit_b"), projector.data.get("projector_type", "linear")
    wide, channels = tower.integers("global_attn_indexes"), tower.integers("downsample_channels")
    tower.check("downsample_channels", len(channels) == 2 and min(channels) > 0, "expected two sizes")
    sizes: list[Any] = [*tower.sizes("width", "layers", "heads"), wide, channels, vision.size("image_size")]
    sam = SamConfig(*sizes)
    found, decoder = ProjectorConfig(*projector.sizes("input_dim", "n_embed")), _decoder_config(root, window)
    root.hold(
        (sam.width % sam.heads == 0, "sam_vit_b.width is not a multiple of heads"),
        (sam.image_size % (sam.patch_size * DOWNSAMPLE_RATIO) == 0, "vision_config.image_size is not n x 64"),
        (kind == "linear", f"projector_config.projector_type is '{kind!s:.40}'; only linear is supported"),
        (found.output_dim == decoder.hidden_size, "projector_config.n_embed is not hidden_size"),
    )
    return sam, found, decoder


def _decoder_config(root: Section, window: bool) -> DecoderConfig:
    # The file holds the decoder's fields twice; the published code reads the top level.
    nested = [] if root.data.get("language_config") is None else [root.section("language_config")]
    decoder = root if "hidden_size" in root.data else root.section("language_config")
    for part in (root, *nested):
        _check_arithmetic(part, window)
    limit = "max_position_embeddings"
    sizes: list[Any] = [
        *decoder.sizes(*_SIZES), None if decoder.data.get(limit) is None else decoder.size(limit),
        *decoder.sizes("bos_token_id", "eos_token_id"), decoder.number("rms_norm_eps", 1e-6),
        decoder.number("rope_theta", 10000.0), decoder.number("routed_scaling_factor", 1.0),
    ]  # fmt: skip
    found = DecoderConfig(*sizes)
    head, heads = decoder.data.get("head_dim") or found.head_dim, decoder.data.get("num_key_value_heads")
    root.hold(
        (found.hidden_size % (2 * found.heads) == 0, "hidden_size / num_attention_heads is not even"),
        (head == found.head_dim, f"head_dim is {head!r:.40}; only hidden_size / num_attention_heads is read"),
        (found.experts_per_token <= found.routed_experts, "num_experts_per_tok exceeds n_routed_experts"),
        (heads in (None, found.heads), "num_key_value_heads differs from num_attention_heads; not supported"),
    )
    return found


def _check_arithmetic(part: Section, window: bool) -> None:
    """Raise ConfigError, with the field, for values that no decoder here supports."""
    for name, values in COMPUTED.items():
        unused = name in WINDOW_FIELDS and (window or part.data.get("use_sliding_window") is False)
        computed = unused or part.data.get(name) in (None, *values)
        part.check(name, computed, f"only {values[0]!r} is supported")
    for name in ("rope_scaling", "rope_parameters"):
        rope = part.data.get(name) or {}
        theta = part.data.get("rope_theta", 10000.0)
        kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, Mapping) else rope
        plain = kind == "default" and (not rope or rope.get("rope_theta", theta) == theta)
        part.check(name, plain, "only plain rotary positions are supported")
    part.check("quantization_config", part.data.get("quantization_config") is None, QUANTISED_ADVICE)


class Section:
    """One object of a config.json. Its errors name the dotted field."""

    def __init__(self, data: Any, source: str, path: str = "") -> None:
        if not isinstance(data, Mapping):
            raise ConfigError(f"{source}: {path or 'the file'} is not a JSON object")
        self.data, self.source, self.path = data, source, path

    def hold(self, *rules: tuple[bool, str]) -> None:
        """Raise ConfigError for the first rule that does not hold."""
        if problem := next((problem for holds, problem in rules if not holds), None):
            raise ConfigError(f"{self.source}: {problem}")

    def check(self, name: str, good: bool, wanted: str) -> None:
        """Raise ConfigError with a field and its value, unless `good`."""
        self.hold((good, f"{self._dotted(name)} is {self.data.get(name)!r:.60}; {wanted}"))

    def section(self, name: str) -> Section:
        return Section(self._value(name), self.source, self._dotted(name))

    def sizes(self, *names: str) -> Iterator[int]:
        return map(self.size, names)

    def size(self, name: str) -> int:
        value, least, most = self._value(name), int(name not in _FROM_0), _MOST.get(name, _MOST_ELSE)
        good = type(value) is int and least <= value <= most
        self.check(name, good, f"expected an integer from {least} to {most:,}")
        return int(value)

    def number(self, name: str, default: float) -> float:
        value = self.data.get(name, default)
        good = type(value) in (int, float) and 0 < value < float("inf")
        self.check(name, good, "expected a positive number")
        return float(value)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._value(name)
        good = isinstance(value, list) and all(type(x) is int and 0 <= x <= _MOST_ELSE for x in value)
        self.check(name, good, "expected a list of integers")
        return tuple(value)

    def _value(self, name: str) -> Any:
        missing = f"{self._dotted(name)} is missing; is this a DeepSeek-OCR checkpoint?"
        self.hold((name in self.data, missing))
        return self.data[name]

    def _dotted(self, name: str) -> str:
        return f"{self.path}.{name}".lstrip(".")
