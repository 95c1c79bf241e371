"""An S3 server of the test's own process, spoken to over a socket; every process of the test finds it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch, bucket: str) -> Iterator[tuple[str, int]]:
    """Its host and port, with one empty bucket. Skips where moto or s3fs are not installed."""
    server_module = pytest.importorskip("moto.server", reason="moto is not installed")
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    server = server_module.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        values = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1",
        }  # fmt: skip
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        # The servers of a process share what they store.
        urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"", timeout=10).close()
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir(bucket)
        yield host, port
        s3fs.S3FileSystem.clear_instance_cache()
    finally:
        server.stop()
