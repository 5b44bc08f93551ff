"""What requests cost, by API: plain numbers that the gate adds to, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.metrics.exposition import Family


class RequestMeter:
    """The figures of one API."""

    __slots__ = ("busy_seconds", "errors", "request_bytes", "requests", "response_bytes", "wait_seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        """Requests that were refused or failed as a whole, not for one of their partitions."""
        self.request_bytes = 0
        self.response_bytes = 0
        self.busy_seconds = 0.0
        """What the loop spent on decoding, handling and encoding."""
        self.wait_seconds = 0.0
        """From there to the response: waiting for data to come, the disk, others to be served."""

    def add_times(self, other: RequestMeter) -> None:
        self.busy_seconds += other.busy_seconds
        self.wait_seconds += other.wait_seconds


MEASURES = (
    ("headrace_requests_total", "Requests received.", "requests"),
    ("headrace_request_errors_total", "Requests refused or failed as a whole.", "errors"),
    ("headrace_request_bytes_total", "Bytes of requests received.", "request_bytes"),
    ("headrace_response_bytes_total", "Bytes of responses made.", "response_bytes"),
    ("headrace_request_busy_seconds_total", "Time the event loop spent on requests.", "busy_seconds"),
    ("headrace_request_wait_seconds_total", "Time that requests waited to be answered.", "wait_seconds"),
)


def request_families(meters: Mapping[str, RequestMeter]) -> Iterator[Family]:
    """By the name of the API."""
    for name, help_text, figure in MEASURES:
        samples = [((("api", api),), getattr(meter, figure)) for api, meter in meters.items()]
        yield Family(name, "counter", f"{help_text[:-1]}, by API.", samples)
