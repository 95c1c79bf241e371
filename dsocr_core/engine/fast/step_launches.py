"""How the kernels of a decode step are launched: block sizes, the order of the MLP, what overlaps.

The defaults are what was measured fastest on an H200 in the order "shared first". The other orders and what
may overlap were not measured yet (`python -m dsocr_core.engine.fast.measure --sweep`); what loses is to go.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from dsocr_core.kernels.launch import Launch

MlpOrder = Literal["shared first", "router first", "joined"]
"""How a mixture's launches follow each other:

shared first  shared gate/up with the router's logits, route, routed gate/up, down
router first  logits, route, shared gate/up, routed gate/up, down
joined        logits, route, shared and routed gate/up in one, down

With the router first the choice of experts is made while the shared weights load, and routed gate/up
starts with its ids; joined, that is so without a launch between them.
"""


@dataclass(frozen=True)
class StepLaunches:
    """Block sizes of every kernel, by its name, the number of splits of attention, and what overlaps.

    `gate_up` is the joined order's. `ahead` are the MiB of weights that attention asks into the L2 cache for
    the rest of its layer, `ahead_qkv` those that down asks for the next layer's products; both want Hopper.
    """

    embed_token: Launch = field(default=Launch(512))
    qkv_rotary: Launch = field(default=Launch(4))
    split_attention: Launch = field(default=Launch(128))
    attention_output: Launch = field(default=Launch(16))
    shared_gate_up: Launch = field(default=Launch(4))
    dense_gate_up: Launch = field(default=Launch(4))
    dense_down: Launch = field(default=Launch(4))
    router_logits: Launch = field(default=Launch(2))
    route: Launch = field(default=Launch(1, 1))
    routed_gate_up: Launch = field(default=Launch(8))
    gate_up: Launch = field(default=Launch(4))
    down: Launch = field(default=Launch(4))
    best_of_rows: Launch = field(default=Launch(16))
    take_best: Launch = field(default=Launch(1024, 8))
    splits: int = 12
    order: MlpOrder = "shared first"
    ahead: int = 0
    ahead_qkv: int = 0

    def of(self, kernel: str) -> Launch:
        """The launch of a kernel by the name that `DecodeStep.kernels` gives it."""
        launch: Launch = getattr(self, {"mixture_down": "down"}.get(kernel, kernel))
        return launch

    def read_before_wait(self) -> dict[str, tuple[str, ...]]:
        """Who wrote what a kernel reads before its wait, weights aside, for `launch.unready`.

        Older rows of the cache come from the step before, so `take_best` stands for them. In the joined
        order the shared part also writes without a wait: what the down product a layer ago has read, and
        that ended before `attention_output` did.
        """
        routed: dict[MlpOrder, dict[str, tuple[str, ...]]] = {
            "shared first": {"routed_gate_up": ("attention_output",)},
            "router first": {
                "shared_gate_up": ("attention_output",),
                "routed_gate_up": ("attention_output", "route"),
            },
            "joined": {"gate_up": ("attention_output",)},
        }
        return {
            "qkv_rotary": ("take_best",),
            "split_attention": ("take_best",),
            "mixture_down": ("route",),
            "best_of_rows": ("embed_token", "take_best"),
            **routed[self.order],
        }

    def with_dependent(self, dependent: bool) -> StepLaunches:
        """The same with programmatic dependent launch on or off everywhere."""
        changes: dict[str, Any] = {
            name: replace(value, dependent=dependent)
            for name, value in vars(self).items()
            if isinstance(value, Launch)
        }
        return replace(self, **changes)


def launches_for(device: torch.device) -> StepLaunches:
    """The defaults; dependent launch from Hopper on."""
    hopper = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return StepLaunches().with_dependent(hopper)
