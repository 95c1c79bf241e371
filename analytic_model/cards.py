"""Cards by a GPU's name and compute capability, and the peaks that a profile states of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from analytic_model.hardware import HARDWARE, Hardware


@dataclass(frozen=True)
class Card:
    names: str
    """Pattern of the names that the driver gives it."""
    capability: str
    hardware: Hardware


CARDS = (
    # The Hopper and Ada sheets print tensor rates with sparsity: half of them is dense.
    Card(r"\bH200 NVL\b", "9.0", Hardware("H200 NVL", 835.5, 60.0, 4800, 141, "NVIDIA H200 data sheet")),
    Card(r"\bH200\b", "9.0", HARDWARE["h200"]),
    # No sheet with its peaks was at hand, nor one of the GH200 of 144 GB.
    Card(r"\bGH200( 480GB| 96GB)", "9.0",
         Hardware("GH200 96 GB", None, None, 4000, 96, "bandwidth as users name it; peaks not known")),
    Card(r"\bH100 PCIe\b", "9.0",
         Hardware("H100 PCIe", 756.5, 51.0, 2000, 80, "NVIDIA H100 data sheet of 2022")),
    Card(r"\bH100 NVL\b", "9.0", Hardware("H100 NVL", 835.5, 60.0, 3900, 94, "NVIDIA H100 NVL data sheet")),
    Card(r"\bH100( 80GB HBM3\b|.SXM)", "9.0", HARDWARE["h100"]),
    # Of the H20 no data sheet of NVIDIA is public: figures as the press gave them, all alike.
    Card(r"\bH20\b", "9.0", Hardware("H20", 148.0, 44.0, 4000, 96, "press reports of 2024; no data sheet")),
    Card(r"\bA100.SXM.?.80GB|\bA100 80GB SXM", "8.0", HARDWARE["a100"]),
    Card(r"\bA100 80GB PCIe", "8.0",
         Hardware("A100 80GB PCIe", 312.0, 19.5, 1935, 80, "NVIDIA A100 data sheet")),
    Card(r"\bA100.(SXM.?|PCIE).40GB", "8.0",
         Hardware("A100 40GB", 312.0, 19.5, 1555, 40, "NVIDIA A100 40GB PCIe data sheet")),
    Card(r"\bA10\b", "8.6", Hardware("A10", 125.0, 31.2, 600, 24, "NVIDIA A10 data sheet")),
    Card(r"\bL40S\b", "8.9", Hardware("L40S", 362.05, 91.6, 864, 48, "NVIDIA L40S data sheet")),
    Card(r"\bL4\b", "8.9", Hardware("L4", 121.0, 30.3, 300, 24, "NVIDIA L4 data sheet")),
    # Their tensor cores have no bfloat16.
    Card(r"\bV100.SXM2", "7.0", Hardware("V100 SXM2", None, 15.7, 900, None, "NVIDIA V100 data sheet")),
    Card(r"\bV100.PCIE", "7.0", Hardware("V100 PCIe", None, 14.0, 900, None, "NVIDIA V100 data sheet")),
    Card(r"\bT4\b", "7.5", Hardware("T4", None, 8.1, 320, 16, "NVIDIA T4 data sheet")),
    Card(r"\bRTX 5090$", "12.0", HARDWARE["rtx-5090"]),
    Card(r"\bRTX 4090$", "8.9", HARDWARE["rtx-4090"]),
    Card(r"\bRTX 3090$", "8.6", HARDWARE["rtx-3090"]),
    Card(r"\bRTX PRO 6000 Blackwell Workstation", "12.0",
         Hardware("RTX PRO 6000 Blackwell Workstation", 503.8, 125.0, 1792, 96,
                  "NVIDIA RTX PRO 6000 data sheet; its bfloat16 rate from cores and clock")),
)  # fmt: skip
"""Dense peaks, accumulated in float32. A laptop's, a cut and an overclocked variant are other cards."""


def card_named(name: str | None, capability: str | None = None) -> Hardware | None:
    """The card of a driver's name; None where it is not known, or its capability is another one."""
    for card in CARDS:
        if name is not None and re.search(card.names, name.strip(), re.IGNORECASE):
            return card.hardware if capability in (None, card.capability) else None
    return None


def with_own_peaks(
    card: Hardware | None, bfloat16: float | None, float32: float | None, bandwidth: float | None
) -> Hardware | None:
    """A card with a report's own peaks in FLOP/s and bytes/s; without a card those, if they make a roof."""
    if bfloat16 is None and float32 is None and bandwidth is None:
        return card
    if card is None:
        if bandwidth is None or (bfloat16 is None and float32 is None):
            return None
        card = Hardware(
            "the card, by the report's own peaks", None, None, bandwidth / 1e9, None, "the report"
        )
        name = card.name
    else:
        name = f"{card.name}, peaks of the report"
    return replace(
        card,
        name=name,
        bfloat16_tflops=bfloat16 / 1e12 if bfloat16 else card.bfloat16_tflops,
        float32_tflops=float32 / 1e12 if float32 else card.float32_tflops,
        bandwidth_gb_s=bandwidth / 1e9 if bandwidth else card.bandwidth_gb_s,
    )
