"""Batch writes by jobId under real Spark: all or nothing, and once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.spark.errors import user_message
from tests.spark.conftest import MakeTopic
from tests.spark.topics import Topics

pytestmark = pytest.mark.headrace_only
ATTEMPTS = 5


def patiently(action: Callable[[], object]) -> None:
    """Again, if Python took longer to start than Spark waits: ten seconds, too few on a busy machine."""
    for attempt in range(ATTEMPTS):
        try:
            action()
            return
        except Exception as error:
            if "failed to connect back" not in str(error) or attempt == ATTEMPTS - 1:
                raise


def test_a_batch_write_with_a_name_is_all_or_nothing_and_once(
    spark: SparkSession, topics: Topics, make_topic: MakeTopic
) -> None:
    topic, series = make_topic(partitions=2), topics.new_name("job")
    rows = spark.range(0, 3000, 1, 3).selectExpr("CAST(id AS STRING) AS key", "concat('v', id) AS value")

    def write(frame: DataFrame, number: int) -> None:
        writer = frame.write.format("headrace").option("kafka.bootstrap.servers", topics.bootstrap)
        patiently(writer.option("topic", topic).option("jobId", f"{series}/{number}").mode("append").save)

    def values() -> list[str]:
        return sorted((one.value or b"").decode() for one in topics.read(topic, range(2)))

    failing = rows.selectExpr("key", "IF(key = '2999', raise_error('no'), value) AS value")
    with pytest.raises(Exception, match="no"):
        write(failing, 1)
    assert values() == [], "what the other tasks wrote is not seen"
    for _ in range(2):
        write(rows, 1)
    assert values() == sorted(f"v{number}" for number in range(3000))
    write(rows.limit(1), 2)
    assert len(values()) == 3001
    with pytest.raises(Exception) as caught:  # whatever Spark makes of it
        write(rows, 1)
    assert "comes too late: number 2" in (user_message(caught.value) or ""), str(caught.value)
