"""Recordings on a GPU for the history that comes with the project: commands, each at a commit."""

from __future__ import annotations

from dataclasses import dataclass

from dsocr_core.measure.ncu_command import Profile
from dsocr_core.stages import Stage

CONFIG = "published/config.json"
"""The published `config.json` in the checkout, as `random:` takes it."""
CHECKPOINT = "published/checkpoint"
"""A checkpoint directory of the published format with its own code and seeded random weights."""


@dataclass(frozen=True)
class Recording:
    """One command at one commit. `note` is what a reader of the run should know."""

    name: str
    commit: str
    """`HEAD` is the checkout that records."""
    arguments: str
    note: str
    code_from: str | None = None
    """A commit from which the embedded checkpoint's own code (`data/mini/*.py`) is taken."""


_BENCH = f"bench --checkpoint random:{CONFIG} --json"
_FAST_BASE = f"{_BENCH} --tokens 1000 --engine fast --repeat 5 --preset base"
_FAST = _FAST_BASE.replace("--preset base", "--preset gundam")
_EAGER = f"{_BENCH} --tokens 200 --engine eager --repeat 3 --preset gundam"
_BATCH = f"{_BENCH} --preset gundam --tokens 1000 --engine fast --batch 256 --pages 512 --repeat 1"
_RANDOM = "published config, random weights"
_PUBLISHED_BASE = (
    f"bench --checkpoint {CHECKPOINT} --vendor-checkpoint {CHECKPOINT} "
    f"--vendor.trust_remote_code+={CHECKPOINT} --attention eager --tokens 200 --engine eager --repeat 3 "
    "--json --preset base"
)
_PUBLISHED = _PUBLISHED_BASE.replace("--preset base", "--preset gundam")
_GRAPH = f"{_RANDOM}; decode in one CUDA graph a token"
_TOGETHER = f"{_RANDOM}; 256 pages together"
_ITSELF = f"{_RANDOM}; the published code itself"
_SAMPLES = "compare data/samples --device cuda --json"

FIRST_FAST = "1da640d"
BATCH = "abdb8c6"
FEWER_GAPS = "c16b271"
EVEN_SPLITS = "a7b87b0"
SAME_NEXT_DAY = "059b637"
HEAD_IN_8_BITS = "b9e858b"
OLD_GELU = "d2272d1"
PUBLISHED_GELU = "8a51b0e"

# In the order of the commits: the time of a run is that of its recording, and a trend goes by time.
RECORDINGS: tuple[Recording, ...] = (
    Recording("fast-1", FIRST_FAST, _FAST, _GRAPH),
    Recording("fast-base-1", FIRST_FAST, _FAST_BASE, _GRAPH),
    Recording("eager-1", FIRST_FAST, _EAGER, _RANDOM),
    Recording("fast-2", BATCH, _FAST, f"{_RANDOM}; vision and prefill in CUDA graphs"),
    Recording("batch-2", BATCH, _BATCH, _TOGETHER),
    Recording("fast-3", FEWER_GAPS, _FAST, f"{_RANDOM}; fewer gaps between kernels"),
    Recording("fast-4", EVEN_SPLITS, _FAST, f"{_RANDOM}; attention's positions split evenly"),
    Recording("eager-4", OLD_GELU, _EAGER, _RANDOM),
    Recording(
        "old-gelu",
        OLD_GELU,
        "compare data/samples --device cuda --dtype bfloat16 --attention eager --preset gundam --json",
        "a real regression: the eager engine rounded CLIP's quick GELU to bfloat16 after each operation, the "
        "published code computes it in float32",
        code_from=PUBLISHED_GELU,
    ),
    Recording("fast-5", SAME_NEXT_DAY, _FAST, _RANDOM),
    Recording("fast-base-5", SAME_NEXT_DAY, _FAST_BASE, _RANDOM),
    Recording("eager-5", SAME_NEXT_DAY, _EAGER, _RANDOM),
    Recording("batch-5", SAME_NEXT_DAY, _BATCH, _TOGETHER),
    Recording("published-gundam", "HEAD", _PUBLISHED, _ITSELF),
    Recording("published-base", "HEAD", _PUBLISHED_BASE, _ITSELF),
    Recording(
        "samples-eager-bf16", "HEAD", f"{_SAMPLES} --dtype bfloat16 --attention eager --preset gundam",
        "embedded checkpoint; the same attention on both sides",
    ),
    Recording(
        "samples-eager-f32", "HEAD", f"{_SAMPLES} --dtype float32 --attention eager",
        "embedded checkpoint; the same attention on both sides",
    ),
    Recording(
        "samples-sdpa-bf16", "HEAD", f"{_SAMPLES} --dtype bfloat16 --attention sdpa --preset gundam",
        "embedded checkpoint; sdpa against the published decoder's eager attention",
    ),
    Recording(
        "samples-fast-bf16", "HEAD", f"{_SAMPLES} --dtype bfloat16 --engine fast --preset gundam",
        "embedded checkpoint; the fast engine sums in another order",
    ),
    Recording("fast-6", HEAD_IN_8_BITS, _FAST, f"{_RANDOM}; the head in 8 bits, views resized on the GPU"),
    Recording("fast-base-6", HEAD_IN_8_BITS, _FAST_BASE, f"{_RANDOM}; the head in 8 bits"),
    Recording("batch-6", HEAD_IN_8_BITS, _BATCH, _TOGETHER),
    Recording("fast-7", "HEAD", _FAST, f"{_RANDOM}; the device chooses the first token"),
)  # fmt: skip


@dataclass(frozen=True)
class ProfileRecording:
    """Nsight Compute over launches of the decode step: the first `taken` of them make the run."""

    name: str
    profile: Profile
    taken: int
    note: str


BEFORE_FAST_STEP = 5
"""Launches of the decode stage before: the choice of the first token, and the state from it."""
FAST_STEP = 76
"""Launches of one decoded token of the fast engine."""
FAST_SIX_LAYERS = 1 + 5 + 5 * 6
"""The embedding, five launches of the dense layer, six of each mixture."""
EAGER_FIVE_LAYERS = 2 + 42 + 4 * 86
"""The choice of a token, its embedding, 42 launches of the dense layer, 86 of each mixture."""

PROFILES: tuple[ProfileRecording, ...] = (
    ProfileRecording(
        "ncu-fast",
        Profile(Stage.DECODE, "fast", BEFORE_FAST_STEP, FAST_STEP, 3),
        FAST_STEP,
        f"{_RANDOM}; one decode step under Nsight Compute, each kernel alone",
    ),
    ProfileRecording(
        "ncu-fast-ops",
        Profile(Stage.DECODE, "fast", BEFORE_FAST_STEP, 40, 3, brief=True),
        FAST_SIX_LAYERS,
        f"{_RANDOM}; embedding and the first six of 12 layers of a decode step under Nsight Compute, each "
        "kernel alone, operations counted",
    ),
    ProfileRecording(
        "ncu-eager",
        Profile(Stage.DECODE, "eager", 0, 420, 3, brief=True),
        EAGER_FIVE_LAYERS,
        f"{_RANDOM}; choice, embedding and the first five of 12 layers of a token of the eager engine under "
        "Nsight Compute, each kernel alone",
    ),
)
"""Those of them that were recorded lie in `gpu/`."""
