"""Features of a view's patches into the decoder's width, by one linear layer.

Letters: T views, G feature map side, C width of the second encoder.
"""

import torch
from torch import Tensor, nn

from dsocr_core.models.config import ProjectorConfig


class Projector(nn.Module):
    """Projector of the second encoder's features alone. (T, G*G, C) and SAM's, unused -> (T, G*G, hidden)"""

    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self.layers = nn.Linear(config.input_dim, config.output_dim)

    def forward(self, encoded: Tensor, sam: Tensor) -> Tensor:
        return self.layers(encoded)


class ClipProjector(Projector):
    """CLIP's features with the class token (T, 1 + G*G, C) and SAM's (T, C, G, G) -> (T, G*G, hidden)"""

    def forward(self, encoded: Tensor, sam: Tensor) -> Tensor:
        features = torch.cat([encoded[:, 1:], sam.flatten(2).transpose(1, 2)], dim=-1)  # (T, G*G, 2C)
        return super().forward(features, sam)
