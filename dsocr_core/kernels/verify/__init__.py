"""A pass over K rows of one page: the current token and what a draft says comes next.

Letters, here and in the files beside: K rows, C hidden size, V vocabulary, p position of the current token.

Row r stands at position p + r, and its result is, bit for bit, what a decode step at that position computes
when the tokens before it are the draft's. Every sum therefore has the order of the one-row kernel: a row of
weights lies in one warp, eight columns a thread, whatever the block, so a block of weights is loaded once and
meets the K vectors one after another. What shares no weights (attention, the choice of experts, down, the
logits that may be best) is the one-row kernel itself with a row in its grid; the L2 cache then reads once.
"""
