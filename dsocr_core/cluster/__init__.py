"""Many pages on many processes and machines: listed, cut into shards, read by Dask's workers, committed once.

    pages -> run (the driver) -> worker -> reader process -> output (shards/, done/)

Only run, worker and local need Dask: `status` and the app read an output directory without it.
"""
