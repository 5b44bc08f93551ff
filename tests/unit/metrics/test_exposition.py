"""R-OPS-3: the text format, read back by Prometheus' own rules."""

from __future__ import annotations

from headrace.metrics.exposition import Family, counter, gauge, render


def test_families_are_rendered_with_help_type_and_samples() -> None:
    text = render(
        [
            counter("requests_total", "Requests.", 12),
            Family("offset", "gauge", "Offsets.", [((("topic", 't"\\\n'), ("partition", 3)), 2**53)]),
            gauge("lag_seconds", "Lag.", 0.25),
        ]
    )
    assert text == (
        "# HELP requests_total Requests.\n# TYPE requests_total counter\nrequests_total 12\n"
        "# HELP offset Offsets.\n# TYPE offset gauge\n"
        'offset{topic="t\\"\\\\\\n",partition="3"} 9007199254740992\n'
        "# HELP lag_seconds Lag.\n# TYPE lag_seconds gauge\nlag_seconds 0.25\n"
    )
