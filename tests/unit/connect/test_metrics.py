"""What a process that runs connectors shows to Prometheus."""

from __future__ import annotations

import asyncio

from headrace.connect.metrics import serve_metrics
from headrace.connect.run import RunCounts


async def test_counts_and_gauges_are_served() -> None:
    counts = RunCounts(records=3, bytes=12, transactions=2, lag=5, gauges={"0/slot_retained_bytes": 7.0})
    server = await serve_metrics({"shop": counts}, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
    assert answer.startswith("HTTP/1.1 200 OK\r\n")
    for line in (
        'headrace_connector_records_total{connector="shop"} 3',
        'headrace_connector_transactions_total{connector="shop"} 2',
        'headrace_connector_lag_records{connector="shop"} 5',
        'headrace_connector_slot_retained_bytes{connector="shop",task="0"} 7',
    ):
        assert line in answer.splitlines()
