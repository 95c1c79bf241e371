"""Cards by the driver's names and compute capability."""

from __future__ import annotations

import pytest

from analytic_model.cards import card_named


@pytest.mark.parametrize(
    ("name", "capability", "bandwidth"),
    [
        ("NVIDIA H100 PCIe", "9.0", 2000), ("NVIDIA H100 80GB HBM3", "9.0", 3350),
        ("NVIDIA H100 NVL", "9.0", 3900),
        ("NVIDIA H200", "9.0", 4800), ("NVIDIA GH200 480GB", "9.0", 4000),
        ("NVIDIA GH200 144G HBM3e", "9.0", None),
        ("NVIDIA A100-SXM4-40GB", "8.0", 1555), ("NVIDIA A100-PCIE-40GB", "8.0", 1555),
        ("NVIDIA A100-SXM4-80GB", "8.0", 2039), ("NVIDIA A100 80GB PCIe", "8.0", 1935),
        ("NVIDIA L40S", "8.9", 864), ("NVIDIA L4", "8.9", 300), ("NVIDIA A10", "8.6", 600),
        ("NVIDIA H20", "9.0", 4000), ("NVIDIA B200", "10.0", 8000), ("NVIDIA GeForce RTX 3090", "8.6", 936),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "12.0", 896), ("Tesla V100-SXM2-16GB", "7.0", 900),
        ("NVIDIA GeForce RTX 5090", "12.0", 1792),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 1792),
        # Others, which have no figures here: no card, rather than a near one.
        ("NVIDIA GB200", "10.0", None), ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", None),
        ("NVIDIA GeForce RTX 3090 Ti", "8.6", None),
        ("NVIDIA A10G", "8.6", None), ("NVIDIA L40", "8.9", None), ("NVIDIA H100", "9.0", None),
        ("NVIDIA L40S", "9.0", None), ("NVIDIA H20-3e", "9.0", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0", None), ("", None, None), (None, "9.0", None),
    ],
)  # fmt: skip
def test_a_card_is_known_by_name_and_capability(
    name: str | None, capability: str | None, bandwidth: float | None
) -> None:
    card = card_named(name, capability)
    assert (card.bandwidth_gb_s if card else None) == bandwidth
