"""Cost of each model's vision, operator by operator, as our modules run it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from analytic_model import ops
from analytic_model.policy import Policy
from analytic_model.stage_cost import StageCost, Tally
from analytic_model.workload import Workload
from dsocr_core.models.config import ClipConfig, ModelConfig, ProjectorConfig, Qwen2Config, SamConfig
from dsocr_core.models.resolution import tokens_per_side
from dsocr_core.models.stages import Stage

IMAGE_CHANNELS = 3


def costs(config: ModelConfig, workload: Workload, policy: Policy) -> tuple[StageCost, ...]:
    """Vision stages of a model in order, and fusion."""
    projector, channels = config.projector, config.sam.downsample_channels[1]

    def stage(name: Stage, run: Callable[..., None], sizes: Any, boundary: Callable[[int], int]) -> StageCost:
        """Add a stage over all views. `boundary` are inputs and outputs of a view with that many tokens."""
        tally, elements = Tally(name), 0
        for index, (views, side) in enumerate(workload.view_groups):
            tally.holds_weights = index == 0
            run(sizes, policy, tally, views * workload.batch, side)
            pixels = IMAGE_CHANNELS * side * side if name == Stage.SAM else 0
            elements += views * workload.batch * (pixels + boundary(tokens_per_side(side) ** 2))
        return StageCost(name, tuple(tally.operators), elements * policy.element_bytes)

    if (encoder := config.encoder) is not None:
        tower = stage(Stage.ENCODER, _encoder_pass, encoder, lambda tokens: 2 * tokens * encoder.width)
    else:
        clip = config.clip
        assert clip is not None
        tower = stage(Stage.CLIP, _clip_pass, clip, lambda tokens: (2 * tokens + 1) * clip.width)
    return (
        stage(Stage.SAM, _sam_pass, config.sam, lambda tokens: tokens * channels),
        tower,
        stage(
            Stage.PROJECTOR, partial(_projector_pass, config.clip is not None), projector,
            lambda tokens: tokens * (projector.input_dim + projector.output_dim),
        ),
        _fusion(config, workload, policy),
    )  # fmt: skip


def _sam_pass(config: SamConfig, policy: Policy, tally: Tally, views: int, side: int) -> None:
    size, width = policy.element_bytes, config.width
    grid = side // config.patch_size
    rows = views * grid * grid
    conv = ops.conv2d(views, IMAGE_CHANNELS, width, config.patch_size, side, grid, size, bias=True)
    tally.add("sam.patch_embed", "convolution", conv)
    if grid != config.grid:
        tally.add("sam.pos_embed", "interpolate", ops.interpolate_bicubic(config.grid, grid, width))
    table = ops.add_position_table(rows, grid * grid, width, config.grid**2, size)
    tally.add("sam.pos_embed", "add", table)

    wide = sum(layer in config.global_attn_indexes for layer in range(config.layers))
    _sam_attention(tally, config, views, grid, policy, layers=wide, window=0)
    _sam_attention(tally, config, views, grid, policy, layers=config.layers - wide, window=config.window)

    layers = config.layers
    tally.add("sam.blocks.norm", "native_layer_norm", ops.layer_norm(rows, width, size), 2 * layers)
    tally.add("sam.blocks.mlp.lin1", "addmm", ops.linear(rows, width, config.mlp_width, size), layers)
    tally.add("sam.blocks.mlp.act", "gelu", ops.elementwise("gelu", rows * config.mlp_width, size), layers)
    tally.add("sam.blocks.mlp.lin2", "addmm", ops.linear(rows, config.mlp_width, width, size), layers)
    tally.add("sam.blocks.residual", "add", ops.add(rows * width, size), 2 * layers)

    neck, (first, second) = config.neck_channels, config.downsample_channels
    half = -(-grid // 2)
    quarter = -(-half // 2)
    tally.add("sam.neck.0", "convolution", ops.conv2d(views, width, neck, 1, grid, grid, size))
    tally.add("sam.neck.norm", "layer_norm_2d", ops.layer_norm(rows, neck, size), 2)
    tally.add("sam.neck.2", "convolution", ops.conv2d(views, neck, neck, 3, grid, grid, size))
    tally.add("sam.net_2", "convolution", ops.conv2d(views, neck, first, 3, grid, half, size))
    tally.add("sam.net_3", "convolution", ops.conv2d(views, first, second, 3, half, quarter, size))


def _sam_attention(
    tally: Tally, config: SamConfig, views: int, grid: int, policy: Policy, layers: int, window: int
) -> None:
    """Add `layers` attentions over windows of that many patches, or the whole grid where `window` is 0."""
    size, width, heads, head_dim = policy.element_bytes, config.width, config.heads, config.head_dim
    name = "sam.blocks.window.attn" if window else "sam.blocks.global.attn"
    sides = window_sides(grid, window, policy.vision_window_padding) if window else (grid,)
    along = sum(sides)
    squares = sum(side * side for side in sides)
    rows = views * along * along
    pairs = views * squares * squares
    to_axis = views * along * squares
    """(query, key row) pairs; there are as many (query, key column) pairs."""

    if window:
        tally.add(f"{name}.windows", "copy", ops.elementwise("copy", rows * width, size), 2 * layers)
    tally.add(f"{name}.qkv", "addmm", ops.linear(rows, width, 3 * width, size), layers)
    own, now = 2 * (window or config.grid) - 1, 2 * (window or grid) - 1
    if own != now:
        tally.add(f"{name}.rel_pos", "interpolate", ops.interpolate_linear(own, now, head_dim), 2 * layers)
    table = ops.relative_table(own, window or grid, head_dim, size)
    tally.add(f"{name}.rel_pos", "index", table, 2 * layers)
    offsets = (window or grid) ** 2
    bias = ops.relative_scores(heads, head_dim, rows, to_axis, offsets, size)
    tally.add(f"{name}.rel_pos", "bmm", bias, 2 * layers)
    outer = ops.outer_sum(pairs * heads, 2 * to_axis * heads, size)
    tally.add(f"{name}.rel_pos", "add", outer, layers)
    core = ops.attention(heads, head_dim, rows, rows, pairs, size, bias=True)
    tally.add_fused_attention(f"{name}.core", core, policy, layers)
    tally.add(f"{name}.proj", "addmm", ops.linear(rows, width, width, size), layers)


def window_sides(grid: int, window: int, padding: bool) -> tuple[int, ...]:
    """Sides of the windows along one axis. The last is padded to full size, or as small as it is."""
    whole, rest = divmod(grid, window)
    if not rest:
        return (window,) * whole
    return (window,) * whole + ((window,) if padding else (rest,))


def _clip_pass(config: ClipConfig, policy: Policy, tally: Tally, views: int, side: int) -> None:
    size, width, layers = policy.element_bytes, config.width, config.layers
    grid = tokens_per_side(side)
    tokens = 1 + grid * grid
    rows = views * tokens
    own = config.image_size // config.patch_size
    unused = ops.Cost(parameters=IMAGE_CHANNELS * width * config.patch_size**2)
    tally.add("clip.embeddings.patch_embedding", "unused", unused)
    class_token = ops.Cost(bytes_read=width * size, weight_bytes=width * size, parameters=width)
    patches = ops.elementwise("copy", rows * width - width, size)
    tally.add("clip.embeddings.class_embedding", "cat", class_token + patches)
    if grid != own:
        resized = ops.interpolate_bicubic(own, grid, width)
        tally.add("clip.embeddings.position_embedding", "interpolate", resized)
    table = ops.add_position_table(rows, tokens, width, config.positions, size)
    tally.add("clip.embeddings.position_embedding", "add", table)
    norm = ops.layer_norm(rows, width, size)
    tally.add("clip.pre_layrnorm", "native_layer_norm", norm)

    tally.add("clip.layers.norm", "native_layer_norm", norm, 2 * layers)
    tally.add("clip.layers.attn.qkv", "addmm", ops.linear(rows, width, 3 * width, size), layers)
    core = ops.attention(config.heads, config.head_dim, rows, rows, rows * tokens, size)
    tally.add_fused_attention("clip.layers.attn.core", core, policy, layers)
    tally.add("clip.layers.attn.out", "addmm", ops.linear(rows, width, width, size), layers)
    tally.add("clip.layers.mlp.fc1", "addmm", ops.linear(rows, width, config.mlp_width, size), layers)
    tally.add(
        "clip.layers.mlp.act",
        "quick_gelu",
        ops.elementwise("quick_gelu", rows * config.mlp_width, size),
        layers,
    )
    tally.add("clip.layers.mlp.fc2", "addmm", ops.linear(rows, config.mlp_width, width, size), layers)
    tally.add("clip.layers.residual", "add", ops.add(rows * width, size), 2 * layers)


def _encoder_pass(config: Qwen2Config, policy: Policy, tally: Tally, views: int, side: int) -> None:
    """Features -> answers of the queries. The mask saves no FLOPs."""
    count = tokens_per_side(side) ** 2
    size, width, layers = policy.element_bytes, config.width, config.layers
    narrow, tokens = config.kv_heads * config.head_dim, 2 * count
    rows = views * tokens
    # Each view size has queries of its own.
    held, tally.holds_weights = tally.holds_weights, True
    queries = ops.Cost(
        bytes_read=count * width * size, weight_bytes=count * width * size, parameters=count * width
    )
    tally.add("encoder.queries", "cat", queries + ops.elementwise("copy", rows * width, size))
    tally.holds_weights = held
    norm = ops.rms_norm(rows, width, size)
    tally.add("encoder.layers.norm", "rms_norm", norm, 2 * layers)
    for name, out in (("q_proj", width), ("k_proj", narrow), ("v_proj", narrow)):
        tally.add(f"encoder.layers.attn.{name}", "addmm", ops.linear(rows, width, out, size), layers)
    for heads in (config.heads, config.kv_heads):
        turned = ops.rotary(rows, tokens, heads, config.head_dim, size)
        tally.add("encoder.layers.attn.rotary", "rotary", turned, layers)
    tally.add("encoder.layers.attn.repeat", "copy", ops.elementwise("copy", rows * width, size), 2 * layers)
    core = ops.attention(config.heads, config.head_dim, rows, rows, rows * tokens, size)
    tally.add_fused_attention("encoder.layers.attn.core", core, policy, layers)
    tally.add("encoder.layers.attn.o_proj", "mm", ops.linear(rows, width, width, size, bias=False), layers)
    tally.add_swiglu("encoder.layers.mlp", rows, width, config.mlp_width, size, layers)
    tally.add("encoder.layers.residual", "add", ops.add(rows * width, size), 2 * layers)
    tally.add("encoder.norm", "rms_norm", norm)


def _projector_pass(
    joined: bool, config: ProjectorConfig, policy: Policy, tally: Tally, views: int, side: int
) -> None:
    """Features -> vision tokens of the decoder's width; features of two encoders are `joined` first."""
    size, rows = policy.element_bytes, views * tokens_per_side(side) ** 2
    if joined:
        tally.add("projector.features", "cat", ops.elementwise("copy", rows * config.input_dim, size))
    tally.add("projector.layers", "addmm", ops.linear(rows, config.input_dim, config.output_dim, size))


def _fusion(config: ModelConfig, workload: Workload, policy: Policy) -> StageCost:
    """Put rows of vision tokens, row ends and separator among the prompt's embeddings."""
    tally = Tally(Stage.VISION_FUSION)
    size, width, batch = policy.element_bytes, config.decoder.hidden_size, workload.batch
    ends = [("image_newline", workload.row_ends)] if workload.newline else []
    for name, times in (*ends, ("view_seperator", 1)):
        learned = ops.Cost(
            bytes_read=width * size,
            bytes_written=batch * times * width * size,
            weight_bytes=width * size,
            parameters=width,
        )
        tally.add(name, "cat", learned)
    tally.add("views", "cat", ops.elementwise("copy", batch * workload.vision_tokens * width, size))
    rows = batch * workload.sequence_length
    tally.add("embed_tokens", "embedding", ops.embedding(rows, config.decoder.vocab_size, width, size))
    tally.add("embeddings", "masked_scatter", ops.elementwise("copy", rows * width, size))
    boundary = (batch * workload.vision_tokens + rows) * width * size
    return StageCost(Stage.VISION_FUSION, tuple(tally.operators), boundary)
