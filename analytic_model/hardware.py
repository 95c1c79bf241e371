"""Limits of devices: published peaks with their source, figures measured here, and cards by their names.

Peaks are dense (no structured sparsity) and accumulate in float32. The float32 figure is that of plain
float32, which torch's products use unless TF32 is allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from analytic_model.policy import Dtype
from dsocr_core.base.errors import DsocrError


@dataclass(frozen=True)
class Hardware:
    name: str
    bfloat16_tflops: float | None
    """None where its tensor cores have no bfloat16, or the figure is not known."""
    float32_tflops: float | None
    """None where it was not measured."""
    bandwidth_gb_s: float
    source: str
    """Source of the figures: a URL, or a measurement."""
    pattern: str | None = None
    """Pattern of the names that the driver gives this card. Laptop, cut-down and overclocked variants are
    other cards."""
    capability: str | None = None

    def __post_init__(self) -> None:
        for field in ("bfloat16_tflops", "float32_tflops", "bandwidth_gb_s"):
            value = getattr(self, field)
            if value is not None and not 0 < value < float("inf"):
                raise DsocrError(f"{field} is {value!r}; expected a positive number")

    def peak_flops(self, dtype: Dtype) -> float:
        """Peak in FLOP/s. Raises DsocrError where it is not known."""
        tflops = self.bfloat16_tflops if dtype == "bfloat16" else self.float32_tflops
        if tflops is None:
            raise DsocrError(f"{dtype} peak of {self.name} is not known; choose a device that has it")
        return tflops * 1e12

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth in bytes/s."""
        return self.bandwidth_gb_s * 1e9


_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_AMPERE = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
_A100 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_BLACKWELL = (
    "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf"
)

_B200 = "https://glennklockwood.com/garden/processors/B200, after NVIDIA's brief, at 1,000 W; no data sheet"
_LAPTOP = (
    "https://hmc-tech.com/gpu/nvidia-geforce-rtx-5090-laptop-140w-vs-nvidia-geforce-rtx-4090-laptop-120w; no "
    "data sheet, and its peaks follow the laptop's power"
)

# The Hopper and Ada sheets print tensor rates with sparsity: half of them is dense. Of patterns the first one
# that fits counts.
HARDWARE: dict[str, Hardware] = {
    "b200": Hardware("B200", 2250.0, 80.0, 8000, _B200, r"\bB200\b", "10.0"),
    "h200-nvl": Hardware("H200 NVL", 835.5, 60.0, 4800, "NVIDIA H200 data sheet", r"\bH200 NVL\b", "9.0"),
    "h200": Hardware(
        "H200 SXM", 989.5, 67.0, 4800, "https://www.nvidia.com/en-us/data-center/h200/", r"\bH200\b", "9.0",
    ),
    # No sheet with its peaks was at hand, nor one of the GH200 of 144 GB.
    "gh200": Hardware(
        "GH200 96 GB", None, None, 4000,
        "bandwidth as users name it; peaks not known", r"\bGH200( 480GB| 96GB)", "9.0",
    ),
    "h100": Hardware(
        "H100 SXM", 989.5, 67.0, 3350,
        "https://www.nvidia.com/en-us/data-center/h100/", r"\bH100( 80GB HBM3\b|.SXM)", "9.0",
    ),
    "h100-nvl": Hardware("H100 NVL", 835.5, 60.0, 3900, "NVIDIA H100 NVL data sheet", r"\bH100 NVL\b", "9.0"),
    "h100-pcie": Hardware(
        "H100 PCIe", 756.5, 51.0, 2000, "NVIDIA H100 data sheet of 2022", r"\bH100 PCIe\b", "9.0",
    ),
    # NVIDIA has no public data sheet of the H20: figures of press reports, which agree.
    "h20": Hardware("H20", 148.0, 44.0, 4000, "press reports of 2024; no data sheet", r"\bH20$", "9.0"),
    "a100": Hardware("A100 80GB SXM", 312.0, 19.5, 2039, _A100, r"\bA100.SXM.?.80GB|\bA100 80GB SXM", "8.0"),
    "a100-pcie": Hardware(
        "A100 80GB PCIe", 312.0, 19.5, 1935, "NVIDIA A100 data sheet", r"\bA100 80GB PCIe", "8.0",
    ),
    "a100-40gb": Hardware(
        "A100 40GB", 312.0, 19.5, 1555,
        "NVIDIA A100 40GB PCIe data sheet", r"\bA100.(SXM.?|PCIE).40GB", "8.0",
    ),
    "a10": Hardware("A10", 125.0, 31.2, 600, "NVIDIA A10 data sheet", r"\bA10\b", "8.6"),
    "l40s": Hardware("L40S", 362.05, 91.6, 864, "NVIDIA L40S data sheet", r"\bL40S\b", "8.9"),
    "l4": Hardware("L4", 121.0, 30.3, 300, "NVIDIA L4 data sheet", r"\bL4\b", "8.9"),
    # Their tensor cores have no bfloat16.
    "v100": Hardware("V100 SXM2", None, 15.7, 900, "NVIDIA V100 data sheet", r"\bV100.SXM2", "7.0"),
    "v100-pcie": Hardware("V100 PCIe", None, 14.0, 900, "NVIDIA V100 data sheet", r"\bV100.PCIE", "7.0"),
    "t4": Hardware("T4", None, 8.1, 320, "NVIDIA T4 data sheet", r"\bT4\b", "7.5"),
    "rtx-5090": Hardware("GeForce RTX 5090", 209.5, 104.8, 1792, _BLACKWELL, r"\bRTX 5090$", "12.0"),
    "rtx-5090-laptop": Hardware(
        "GeForce RTX 5090 Laptop", None, None, 896, _LAPTOP, r"\bRTX 5090 Laptop GPU$", "12.0",
    ),
    "rtx-4090": Hardware("GeForce RTX 4090", 165.2, 82.6, 1008, _ADA, r"\bRTX 4090$", "8.9"),
    "rtx-3090": Hardware("GeForce RTX 3090", 71.0, 35.6, 936, _AMPERE, r"\bRTX 3090$", "8.6"),
    "rtx-pro-6000": Hardware(
        "RTX PRO 6000 Blackwell Workstation", 503.8, 125.0, 1792,
        "NVIDIA RTX PRO 6000 data sheet; its bfloat16 rate from cores and clock",
        r"\bRTX PRO 6000 Blackwell Workstation", "12.0",
    ),
    "h200-measured": Hardware(
        "H200, measured here", 780.0, None, 4300,
        "measured here on one H200 with torch 2.11: bf16 matmul, and device copy counting reads and writes",
    ),
}  # fmt: skip


def hardware_named(name: str) -> Hardware:
    """Device of that key. Raises DsocrError with the known keys."""
    if name.lower() not in HARDWARE:
        raise DsocrError(f"unknown hardware '{name}': choose one of {', '.join(HARDWARE)}")
    return HARDWARE[name.lower()]


def card_named(name: str | None, capability: str | None = None) -> Hardware | None:
    """Card for a driver's name; None where it is not known, or the compute capability differs."""
    if name is None or " MIG " in name:
        return None
    cards = (card for card in HARDWARE.values() if card.pattern)
    found = next((card for card in cards if re.search(str(card.pattern), name.strip(), re.IGNORECASE)), None)
    return found if found is not None and capability in (None, found.capability) else None


def with_figures(device: Hardware | None, peak: float | None, bandwidth: float | None) -> Hardware | None:
    """Device with a user's own figures, TFLOP/s of either dtype and GB/s; None where none is known.

    Raises DsocrError where one of the two is missing, or is not a positive number.
    """
    if peak is None and bandwidth is None:
        return device
    if device is None:
        if peak is None or bandwidth is None:
            raise DsocrError("the device is not known: give both --peak TFLOP/s and --bandwidth GB/s")
        return Hardware("the figures given", peak, peak, bandwidth, "given by the user")
    name, source = f"{device.name} under the figures given", f"given by the user; else {device.source}"
    own = {"bfloat16_tflops": peak, "float32_tflops": peak, "bandwidth_gb_s": bandwidth}
    figures: dict[str, Any] = {field: value for field, value in own.items() if value is not None}
    return replace(device, name=name, source=source, **figures)
