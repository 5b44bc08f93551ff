"""The metrics of a process that runs connectors, for Prometheus, on a small HTTP server of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from headrace.connect.run import RunCounts
from headrace.metrics.exposition import CONTENT_TYPE, Family, Labels, render

_COUNTERS = (
    ("records", "Records written."),
    ("bytes", "Bytes of keys and values written."),
    ("transactions", "Transactions committed."),
    ("restarts", "Restarts of the tasks after an error."),
    ("schema_changes", "Schemas of topics that changed."),
)
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]")


def families(running: Mapping[str, RunCounts]) -> list[Family]:
    """By the name of the connector."""
    found = [
        Family(
            f"headrace_connector_{name}_total",
            "counter",
            told,
            [(_labels(connector), getattr(counts, name)) for connector, counts in running.items()],
        )
        for name, told in _COUNTERS
    ]
    lags = [(_labels(connector), float(counts.lag)) for connector, counts in running.items()]
    found.append(
        Family("headrace_connector_lag_records", "gauge", "Records that a sink has not written yet.", lags)
    )
    gauges: dict[str, list[tuple[Labels, float]]] = {}
    for connector, counts in running.items():
        for place, value in counts.gauges.items():
            task, _, name = place.partition("/")
            gauges.setdefault(name, []).append(((*_labels(connector), ("task", task)), value))
    found += [
        Family(f"headrace_connector_{_NO_NAME.sub('_', name)}", "gauge", "Measured by the connector.", samples)
        for name, samples in gauges.items()
    ]
    return found


def _labels(connector: str) -> Labels:
    return (("connector", connector),)


async def serve_metrics(running: Mapping[str, RunCounts], host: str, port: int) -> asyncio.Server:
    """Serves the metrics on every path; with port 0 the chosen port is in the server's sockets."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            body = render(families(running)).encode()
            head = f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n" + head.encode() + body)
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port)
