"""W17: what becomes of Spark's runs."""

from __future__ import annotations

from bench.workloads.w17_spark import figures_of, lost


def test_medians_of_both_formats() -> None:
    runs = [
        {"format": kind, "rows": 1000, "seconds": seconds, "cpu_seconds": cpu}
        for kind, seconds, cpu in [
            ("kafka", 2.0, 4.0),
            ("headrace", 1.0, 1.0),
            ("kafka", 4.0, 8.0),
            ("headrace", 0.5, 3.0),
            ("kafka", 100.0, 6.0),
            ("headrace", 9.0, 2.0),
        ]
    ]
    assert figures_of(runs, 100) == {
        "records_per_s": 1000,
        "mb_per_s": 0.1,
        "connector_records_per_s": 250,
        "against_connector": 4,
        "spark_cpu_s_per_million": 2000,
        "connector_cpu_s_per_million": 6000,
    }


def test_rows_that_are_missing_or_doubled_count_as_lost() -> None:
    runs = [{"topic": topic, "rows": 1000} for topic in ("whole", "short", "doubled", "")]
    assert lost(runs, {"whole": 1000, "short": 990, "doubled": 1001}) == 11
