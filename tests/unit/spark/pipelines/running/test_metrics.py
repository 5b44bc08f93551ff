"""The page for Prometheus, and a port that somebody else has (R-SPK-8)."""

from __future__ import annotations

import socket
import urllib.request

import pytest

from headrace.spark.pipelines.running.metrics import MetricsServer, PortNotFree
from headrace.spark.pipelines.running.progress import QueryProgress


def test_the_page_has_the_figures_of_every_query() -> None:
    query = QueryProgress("logs", "logs.errors", "running", rows=7)
    server = MetricsServer(0, lambda: [query])
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
            page = answer.read().decode()
    finally:
        server.close()
    assert 'headrace_pipeline_rows_total{pipeline="logs",query="logs.errors"} 7\n' in page
    assert 'headrace_pipeline_up{pipeline="logs",query="logs.errors"} 1\n' in page


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortNotFree, match=f"^port {port} for metrics cannot be used: it is already in use$"):
            MetricsServer(port, list)
