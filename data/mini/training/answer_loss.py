"""The loss of an answer's tokens, in which a box's numbers count for more and a near miss for less.

Letters: B pages, L target tokens, V vocabulary, N neighbours of a number.

To plain cross entropy the thousand places of an edge are a thousand unrelated words: what is learned about
412 says nothing about 413, so boxes lag behind the text. Here a number shares its target with its neighbours.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from data.mini.training.markup import LAST_BIN
from data.mini.training.tokenizer import PAD, build_tokenizer

REACH = 4  # numbers to each side that take a share of the target
SPREAD = 0.7  # bins in which a share falls to 1/e: the number itself keeps 0.61, each neighbour 0.15
NUMBER_WEIGHT = 3.0  # of a box's number against any other token


class NearMisses(nn.Module):
    """Cross entropy (...) of logits (..., V) against targets (...), in which a place is shared out.

    `numbers` are the ids of 0, 1, 2, ...; a target that is one of them and of which `place` (...) is true
    shares with the numbers beside it. Without numbers this is plain cross entropy.
    """

    near: Tensor
    is_number: Tensor
    shares: Tensor

    def __init__(self, vocabulary: int, numbers: Sequence[int]) -> None:
        super().__init__()
        steps = torch.arange(-REACH, REACH + 1)
        ids = torch.tensor(numbers, dtype=torch.long)
        near = torch.arange(vocabulary)[:, None].repeat(1, len(steps))  # (V, N)
        places = (torch.arange(len(ids))[:, None] + steps).clamp(0, max(0, len(ids) - 1))
        near[ids] = ids[places]
        is_number = torch.zeros(vocabulary, dtype=torch.bool)
        is_number[ids] = True
        spread = torch.exp(-steps.abs() / SPREAD)
        shares = torch.stack([(steps == 0).float(), spread / spread.sum()])  # of a word, of a place
        self.register_buffer("near", near, persistent=False)
        self.register_buffer("is_number", is_number, persistent=False)
        self.register_buffer("shares", shares, persistent=False)

    def forward(self, logits: Tensor, target: Tensor, place: Tensor) -> Tensor:
        expected = (logits.gather(-1, self.near[target]) * self.shares[place.long()]).sum(-1)
        return logits.logsumexp(-1) - expected


class AnswerLoss(nn.Module):
    """Weighted cross entropy of (B, L, V) logits against (B, L) targets, padding left out.

    `numbers` are the ids of 0, 1, 2, ... as a box spells them; only between `opening` and `closing` do they
    count as places. Without them this is plain cross entropy.
    """

    def __init__(
        self, vocabulary: int, padding: int, numbers: Sequence[int] = (), opening: int = -1, closing: int = -1
    ) -> None:
        super().__init__()
        self.padding, self.opening, self.closing = padding, opening, closing
        self.each = NearMisses(vocabulary, numbers)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        inside = (target == self.opening).cumsum(1) > (target == self.closing).cumsum(1)
        place = inside & self.each.is_number[target]  # (B, L)
        losses = self.each(logits, target, place)
        weights = (1 + (NUMBER_WEIGHT - 1) * place) * (target != self.padding)
        return (losses * weights).sum() / weights.sum()


def markup_loss(vocabulary: int) -> AnswerLoss:
    """The loss for answers as the checkpoint's tokenizer writes them."""
    tokenizer = build_tokenizer()
    numbers = [tokenizer.encode(str(number)).ids for number in range(LAST_BIN + 1)]
    padding, opening, closing = (tokenizer.token_to_id(each) for each in (PAD, "<|det|>", "<|/det|>"))
    return AnswerLoss(vocabulary, padding, [first for (first,) in numbers], opening, closing)
