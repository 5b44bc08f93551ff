"""A pipeline's progress for Prometheus: `headrace_pipeline_*`, at `/metrics` of a port of its own."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.spark.pipelines.running.progress import QueryProgress

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ALIVE = ("running", "waiting")
FAMILIES: tuple[tuple[str, str, str, Callable[[QueryProgress], float | None]], ...] = (
    (
        "headrace_pipeline_up",
        "gauge",
        "1 while the query runs.",
        lambda q: q.state in ALIVE,
    ),
    (
        "headrace_pipeline_start_time_seconds",
        "gauge",
        "Unix time at which this run, and with it the counters, began.",
        lambda q: datetime.fromisoformat(q.began).timestamp(),
    ),
    ("headrace_pipeline_rows_total", "counter", "Rows read.", lambda q: q.rows),
    ("headrace_pipeline_batches_total", "counter", "Micro-batches done.", lambda q: q.batches),
    ("headrace_pipeline_malformed_total", "counter", "Records sent to the dead letters.", lambda q: q.malformed),
    ("headrace_pipeline_late_total", "counter", "Rows dropped by the watermark.", lambda q: q.late),
    ("headrace_pipeline_restarts_total", "counter", "Restarts after a failure.", lambda q: q.restarts),
    ("headrace_pipeline_rows_per_second", "gauge", "Rows read a second.", lambda q: q.rows_per_second),
    ("headrace_pipeline_lag_records", "gauge", "Records not read yet.", lambda q: q.lag),
    ("headrace_pipeline_batch_seconds", "gauge", "Time of the last micro-batch.", lambda q: q.batch_seconds),
)
"""Name, type, help, and the figure of a query; None is left out."""

Queries = Callable[[], Sequence[QueryProgress]]


def exposition(queries: Sequence[QueryProgress]) -> str:
    return "".join(f"{line}\n" for line in _lines(queries))


def _lines(queries: Sequence[QueryProgress]) -> Iterator[str]:
    for name, kind, meaning, figure in FAMILIES:
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} {kind}"
        for query in queries:
            value = figure(query)
            if value is not None:
                # Names of pipelines and queries have no character that would need escaping.
                yield f'{name}{{pipeline="{query.pipeline}",query="{query.name}"}} {_number(value)}'


def _number(value: float) -> str:
    """All digits of a count; six of what is measured."""
    return str(int(value)) if value == int(value) else f"{value:g}"


class PortNotFree(Exception):
    """The port for metrics cannot be used."""

    advice = "Choose another with --metrics-port, or 0 for a free one."

    def __init__(self, port: int, error: OSError) -> None:
        why = "it is already in use" if error.errno == errno.EADDRINUSE else (error.strerror or "").lower()
        super().__init__(f"port {port} for metrics cannot be used: {why}")


class MetricsServer:
    """Raises `PortNotFree`."""

    def __init__(self, port: int, queries: Queries, host: str = "127.0.0.1") -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.split("?")[0] != "/metrics":
                    self.send_error(404, "only /metrics is served here")
                    return
                body = exposition(queries()).encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Scrapes are not logged."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise PortNotFree(port, error) from None
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="pipeline-metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
