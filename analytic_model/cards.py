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
    Card(r"\bB200\b", "10.0", HARDWARE["b200"]),
    Card(r"\bH200 NVL\b", "9.0", HARDWARE["h200-nvl"]),
    Card(r"\bH200\b", "9.0", HARDWARE["h200"]),
    Card(r"\bGH200( 480GB| 96GB)", "9.0", HARDWARE["gh200"]),
    Card(r"\bH100 PCIe\b", "9.0", HARDWARE["h100-pcie"]),
    Card(r"\bH100 NVL\b", "9.0", HARDWARE["h100-nvl"]),
    Card(r"\bH100( 80GB HBM3\b|.SXM)", "9.0", HARDWARE["h100"]),
    Card(r"\bH20$", "9.0", HARDWARE["h20"]),
    Card(r"\bA100.SXM.?.80GB|\bA100 80GB SXM", "8.0", HARDWARE["a100"]),
    Card(r"\bA100 80GB PCIe", "8.0", HARDWARE["a100-pcie"]),
    Card(r"\bA100.(SXM.?|PCIE).40GB", "8.0", HARDWARE["a100-40gb"]),
    Card(r"\bA10\b", "8.6", HARDWARE["a10"]),
    Card(r"\bL40S\b", "8.9", HARDWARE["l40s"]),
    Card(r"\bL4\b", "8.9", HARDWARE["l4"]),
    Card(r"\bV100.SXM2", "7.0", HARDWARE["v100"]),
    Card(r"\bV100.PCIE", "7.0", HARDWARE["v100-pcie"]),
    Card(r"\bT4\b", "7.5", HARDWARE["t4"]),
    Card(r"\bRTX 5090$", "12.0", HARDWARE["rtx-5090"]),
    Card(r"\bRTX 5090 Laptop GPU$", "12.0", HARDWARE["rtx-5090-laptop"]),
    Card(r"\bRTX 4090$", "8.9", HARDWARE["rtx-4090"]),
    Card(r"\bRTX 3090$", "8.6", HARDWARE["rtx-3090"]),
    Card(r"\bRTX PRO 6000 Blackwell Workstation", "12.0", HARDWARE["rtx-pro-6000"]),
)
"""A laptop's, a cut and an overclocked variant are other cards."""


def card_named(name: str | None, capability: str | None = None) -> Hardware | None:
    """The card of a driver's name; None where it is not known, or its capability is another one."""
    if name is None or " MIG " in name:
        return None
    for card in CARDS:
        if re.search(card.names, name.strip(), re.IGNORECASE):
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
