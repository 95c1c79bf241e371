"""Limits of devices: published peaks with their source, and figures measured here.

Peaks are dense (no structured sparsity) and accumulate in float32. The float32 figure is that of plain
float32, which torch's products use unless TF32 is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analytic_model.policy import Dtype
from dsocr_core.base.errors import DsocrError


class HardwareError(DsocrError, ValueError):
    """A device that is not in the list, or a figure that is no positive number."""


@dataclass(frozen=True)
class Hardware:
    name: str
    bfloat16_tflops: float | None
    """None where its tensor cores have none, or nobody said."""
    float32_tflops: float | None
    """None where nobody measured it."""
    bandwidth_gb_s: float
    memory_gb: float | None
    source: str
    """Source of the figures: an address, or a measurement."""

    def __post_init__(self) -> None:
        for field in ("bfloat16_tflops", "float32_tflops", "bandwidth_gb_s", "memory_gb"):
            value = getattr(self, field)
            if value is not None and not 0 < value < float("inf"):
                raise HardwareError(f"{field} is {value!r}; expected a positive number")

    def peak_flops(self, dtype: Dtype) -> float:
        """FLOP/s. Raises HardwareError where there is no figure."""
        tflops = self.bfloat16_tflops if dtype == "bfloat16" else self.float32_tflops
        if tflops is None:
            raise HardwareError(f"{dtype} peak of {self.name} is not known; choose a device that has it")
        return tflops * 1e12

    @property
    def bandwidth(self) -> float:
        """Bytes/s."""
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

# The Hopper and Ada sheets print tensor rates with sparsity: half of them is dense.
HARDWARE: dict[str, Hardware] = {
    "b200": Hardware("B200", 2250.0, 80.0, 8000, 192, _B200),
    "h200": Hardware("H200 SXM", 989.5, 67.0, 4800, 141, "https://www.nvidia.com/en-us/data-center/h200/"),
    "h200-nvl": Hardware("H200 NVL", 835.5, 60.0, 4800, 141, "NVIDIA H200 data sheet"),
    # No sheet with its peaks was at hand, nor one of the GH200 of 144 GB.
    "gh200": Hardware("GH200 96 GB", None, None, 4000, 96, "bandwidth as users name it; peaks not known"),
    "h100": Hardware("H100 SXM", 989.5, 67.0, 3350, 80, "https://www.nvidia.com/en-us/data-center/h100/"),
    "h100-nvl": Hardware("H100 NVL", 835.5, 60.0, 3900, 94, "NVIDIA H100 NVL data sheet"),
    "h100-pcie": Hardware("H100 PCIe", 756.5, 51.0, 2000, 80, "NVIDIA H100 data sheet of 2022"),
    # Of the H20 no data sheet of NVIDIA is public: figures as the press gave them, all alike.
    "h20": Hardware("H20", 148.0, 44.0, 4000, 96, "press reports of 2024; no data sheet"),
    "a100": Hardware("A100 80GB SXM", 312.0, 19.5, 2039, 80, _A100),
    "a100-pcie": Hardware("A100 80GB PCIe", 312.0, 19.5, 1935, 80, "NVIDIA A100 data sheet"),
    "a100-40gb": Hardware("A100 40GB", 312.0, 19.5, 1555, 40, "NVIDIA A100 40GB PCIe data sheet"),
    "a10": Hardware("A10", 125.0, 31.2, 600, 24, "NVIDIA A10 data sheet"),
    "l40s": Hardware("L40S", 362.05, 91.6, 864, 48, "NVIDIA L40S data sheet"),
    "l4": Hardware("L4", 121.0, 30.3, 300, 24, "NVIDIA L4 data sheet"),
    # Their tensor cores have no bfloat16.
    "v100": Hardware("V100 SXM2", None, 15.7, 900, None, "NVIDIA V100 data sheet"),
    "v100-pcie": Hardware("V100 PCIe", None, 14.0, 900, None, "NVIDIA V100 data sheet"),
    "t4": Hardware("T4", None, 8.1, 320, 16, "NVIDIA T4 data sheet"),
    "rtx-pro-6000": Hardware(
        "RTX PRO 6000 Blackwell Workstation", 503.8, 125.0, 1792, 96,
        "NVIDIA RTX PRO 6000 data sheet; its bfloat16 rate from cores and clock",
    ),
    "rtx-5090": Hardware("GeForce RTX 5090", 209.5, 104.8, 1792, 32, _BLACKWELL),
    "rtx-5090-laptop": Hardware("GeForce RTX 5090 Laptop", None, None, 896, 24, _LAPTOP),
    "rtx-4090": Hardware("GeForce RTX 4090", 165.2, 82.6, 1008, 24, _ADA),
    "rtx-3090": Hardware("GeForce RTX 3090", 71.0, 35.6, 936, 24, _AMPERE),
    "h200-measured": Hardware(
        "H200, measured here",
        780.0,
        None,
        4300,
        141,
        "measured here on one H200 with torch 2.11: bf16 matmul, and device copy counting reads and writes",
    ),
}  # fmt: skip


def hardware_named(name: str) -> Hardware:
    """The device of that key. Raises HardwareError that lists the keys."""
    try:
        return HARDWARE[name.lower()]
    except KeyError:
        raise HardwareError(f"unknown hardware '{name}': choose one of {', '.join(HARDWARE)}") from None


def measured_hardware(
    tflops: float, bandwidth_gb_s: float, name: str = "measured here", source: str = "given by the user"
) -> Hardware:
    """A device by its measured speed in either dtype. Raises HardwareError for figures that are not > 0."""
    return Hardware(name, tflops, tflops, bandwidth_gb_s, None, source)


def with_figures(device: Hardware | None, peak: float | None, bandwidth: float | None) -> Hardware | None:
    """A device with a user's own figures, TFLOP/s of either dtype and GB/s; None where nothing is known.

    Raises HardwareError for one of the two figures where the other is not known, or is no positive number.
    """
    if peak is None and bandwidth is None:
        return device
    if device is None:
        if peak is None or bandwidth is None:
            raise HardwareError("the device is not known: give both --peak TFLOP/s and --bandwidth GB/s")
        return measured_hardware(peak, bandwidth, "the figures given")
    return replace(
        device,
        name=f"{device.name} under the figures given",
        bfloat16_tflops=device.bfloat16_tflops if peak is None else peak,
        float32_tflops=device.float32_tflops if peak is None else peak,
        bandwidth_gb_s=device.bandwidth_gb_s if bandwidth is None else bandwidth,
        source=f"given by the user; else {device.source}",
    )
