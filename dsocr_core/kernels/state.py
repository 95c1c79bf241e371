"""The decode state of a sequence, on the device: four int32 numbers that the host writes once a page.

In a batch every slot has four of its own: (S, 4).

| index    | meaning                                                                        |
|----------|--------------------------------------------------------------------------------|
| POSITION | of the current token, the last one chosen; the caches hold all before it       |
| LAST     | position of the last token that the limit allows                               |
| DONE     | 1 after the end token or LAST: steps then change nothing                       |
| NGRAM    | size of the n-grams that may not repeat, 0 for no such rule                    |
"""

import triton.language as tl
from torch import Tensor

POSITION, LAST, DONE, NGRAM, SIZE = 0, 1, 2, 3, 4

# Kernels see module constants only as these.
AT_POSITION = tl.constexpr(POSITION)
AT_LAST = tl.constexpr(LAST)
AT_DONE = tl.constexpr(DONE)
AT_NGRAM = tl.constexpr(NGRAM)
AT_SIZE = tl.constexpr(SIZE)


def position(state: Tensor) -> int:
    """For references and tests: reading it waits for the device."""
    return int(state[POSITION])
