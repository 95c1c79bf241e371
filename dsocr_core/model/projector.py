"""Projector: one linear layer from both towers' features to the decoder's width."""

import torch
from torch import Tensor, nn

from dsocr_core.config import ProjectorConfig


class Projector(nn.Module):
    """Features of a view's patches -> vision tokens.

    `clip` is (B, 1 + N, C) with the class token, `sam` (B, C, G, G); returns (B, N, hidden), N = G*G.
    """

    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self.layers = nn.Linear(config.input_dim, config.output_dim)

    def forward(self, clip: Tensor, sam: Tensor) -> Tensor:
        features = torch.cat([clip[:, 1:], sam.flatten(2).transpose(1, 2)], dim=-1)  # (B, N, 2C)
        out: Tensor = self.layers(features)
        return out
