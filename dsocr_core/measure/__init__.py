"""Everything that measures: benchmarks, parity of the fast engine, sweeps, soak runs."""
