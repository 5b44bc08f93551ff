"""What a topic's records look like, and the first file that is written for them (R-BEY-4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.trying.first_file import first_file, pipeline_name, view_name
from headrace.spark.pipelines.trying.inference import guess


@pytest.mark.parametrize(
    ("values", "ddl"),
    [
        ([b'{"id": 1}', b'{"id": 2, "name": "x"}'], "id bigint, name string"),
        ([b'{"n": 1}', b'{"n": 1.5}', b'{"n": null}'], "n double"),
        ([b'{"at": "2026-03-01T10:00:07Z", "day": "2026-03-01"}'], "at timestamp, day date"),
        ([b'{"at": "2026-03-01T10:00:07Z"}', b'{"at": "soon"}'], "at string"),
        ([b'{"tags": ["a"], "ok": true, "none": null}'], "tags array<string>, ok boolean, none string"),
        ([b'{"who": {"id": 1}}', b'{"who": {"id": 2, "x y": "z"}}'], "who struct<id: bigint, `x y`: string>"),
        ([b'{"big": 18446744073709551616}'], "big string"),
        ([b'{"v": 1}', b'{"v": {"w": 1}}'], "v string"),
    ],
)
def test_types(values: list[bytes | None], ddl: str) -> None:
    found = guess(values)
    assert (found.format, found.ddl) == ("json", ddl)


def test_formats() -> None:
    assert guess([]).format == "raw"
    assert guess([b"one", b"two"]).format == "text"
    assert guess([b"\xff\xfe"]).format == "raw"
    assert guess([b"[1]", b"2"]).format == "text"
    some = guess([b'{"a": 1}'] * 9 + [b"{broken", None])
    assert (some.format, some.malformed, some.records) == ("json", 1, 11)
    assert guess([b'{"a": 1}'] * 3 + [b"{broken"]).format == "json", "one of the four orders in pipelines.md"


@pytest.mark.parametrize("values", [[b'{"order id": 1, "at": "2026-03-01T10:00:07Z"}'], [b"text"], [b"\xff"], []])
@pytest.mark.parametrize("topic", ["orders", "logs.raw-2", "2026"])
def test_the_file_loads(tmp_path: Path, values: list[bytes | None], topic: str) -> None:
    path = tmp_path / "p.yml"
    path.write_text(first_file(topic, guess(values), "other:9092"))
    pipeline = load_pipeline(path)
    assert pipeline.name == pipeline_name(topic)
    assert pipeline.bootstrap == "other:9092"
    (source,) = pipeline.sources
    assert (source.name, source.topics) == (view_name(topic), (topic,))
    assert pipeline.sinks[0].input == "selected"
    assert pipeline.steps[0].inputs == (source.name,)
