"""Triton kernels, a file each, beside their references in plain torch.

`decode` has one token of one page, `batch` one token of many pages, `prefill` vision and the prompt. A decode
step of the published model is bound by reading 1.15 GB of weights, so its kernels are matrix-vector products
with the small operations around them fused in: six launches a layer. The host passes no position to a kernel:
all read the decode state on the device (`state`), so one captured graph serves every token.

Every kernel writes to tensors of its caller, and raises ValueError when these do not fit each other.

Importing a module from here needs triton.
"""
