"""The views that a query reads, found in its text."""

from __future__ import annotations

import pytest

from headrace.spark.pipelines.loading.sql_names import names_inside, views_read

KNOWN = ["raw", "users", "Parsed"]


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT * FROM raw", ["raw"]),
        ("select * from RAW join users using (id)", ["raw", "users"]),
        ("SELECT * FROM raw r LEFT OUTER JOIN users u ON r.id = u.id", ["raw", "users"]),
        ("SELECT * FROM raw, users WHERE raw.id = users.id", ["raw", "users"]),
        ("SELECT * FROM `parsed`", ["Parsed"]),
        ("SELECT users, count(raw) FROM parsed", ["Parsed"]),
        ("SELECT 'FROM raw' AS x, \"FROM users\" AS y FROM parsed", ["Parsed"]),
        ("-- FROM raw\nSELECT 1 /* JOIN users */ FROM parsed", ["Parsed"]),
        ("SELECT * FROM (SELECT * FROM raw WHERE id IN (SELECT id FROM users)) x", ["raw", "users"]),
        ("SELECT * FROM raw UNION ALL SELECT * FROM users", ["raw", "users"]),
        ("WITH x AS (SELECT * FROM raw) SELECT * FROM x JOIN users", ["raw", "users"]),
        ("SELECT window(ts, '1 minute'), users FROM raw GROUP BY 1, users", ["raw"]),
        ("SELECT * FROM STREAM(raw)", ["raw"]),
        ("FROM raw |> WHERE users > 1", ["raw"]),
        ("SELECT 'it''s' FROM raw", ["raw"]),
        ("SELECT other.users FROM other", []),
        ("SELECT ) FROM raw", ["raw"]),
    ],
)
def test_views_read(sql: str, read: list[str]) -> None:
    assert views_read(sql, KNOWN) == read


def test_names_a_query_gives_itself() -> None:
    sql = "WITH Recent AS (SELECT 1), other(a, b) AS (\n VALUES (1, 2)) SELECT count(*) AS n FROM recent"
    assert names_inside(sql) == {"recent", "other"}
