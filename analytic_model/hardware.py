"""Limits of devices: published peaks with their source, and figures measured here.

Peaks are dense (no structured sparsity) and accumulate in float32. The float32 figure is that of plain
float32, which torch's products use unless TF32 is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

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

HARDWARE: dict[str, Hardware] = {
    # The Hopper pages print 1,979 TFLOP/s with sparsity: half of it is dense.
    "h200": Hardware("H200 SXM", 989.5, 67.0, 4800, 141, "https://www.nvidia.com/en-us/data-center/h200/"),
    "h100": Hardware("H100 SXM", 989.5, 67.0, 3350, 80, "https://www.nvidia.com/en-us/data-center/h100/"),
    "a100": Hardware("A100 80GB SXM", 312.0, 19.5, 2039, 80, _A100),
    "rtx-5090": Hardware("GeForce RTX 5090", 209.5, 104.8, 1792, 32, _BLACKWELL),
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
}


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
