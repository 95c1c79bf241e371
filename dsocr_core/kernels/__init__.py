"""Triton kernels of one decode step, a file each, every one beside its plain torch reference.

A step of the published model is bound by reading 1.15 GB of weights, so the kernels are matrix-vector
products that do the small work around them on the way: six launches a layer. No kernel is told by the
host where the sequence stands; all read the decode state on the device (`state`), so one recorded
graph serves every token.

Importing a module from here needs triton. Nothing else in `dsocr_core` but the fast engine does that.
"""
