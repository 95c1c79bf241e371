"""Benchmarks, the speed gate, and profiles by Nsight Compute."""
