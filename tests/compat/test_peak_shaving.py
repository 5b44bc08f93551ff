"""Peak shaving before a slow database (R-SPK-5): all rows of a burst, once, in transactions of a limited size."""

from __future__ import annotations

import importlib.util
import sqlite3
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka import KafkaException

from tests.spark.topics import Topics

WRITER = Path(__file__).resolve().parents[2] / "examples" / "peak_shaving" / "writer.py"


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peak_shaving_writer", WRITER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["IDLE_S"] = 1.0
    return module


def test_a_burst_arrives_in_small_portions(bootstrap: str, tmp_path: Path) -> None:
    topics = Topics(bootstrap)
    name, path = topics.create(partitions=2), str(tmp_path / "shop.db")
    topics.send(name, [f"order {number}" for number in range(900)], keys=[str(number) for number in range(900)])
    run = writer().run
    written = 0
    while written < 900:  # on a busy machine a pause may look like the end
        written += run(bootstrap, name, path, 300, until_idle=True)
    assert written == 900
    topics.send(name, ["late"])
    assert run(bootstrap, name, path, 300, until_idle=True) == 1, "what is stored is not read again"
    with sqlite3.connect(path) as database:
        rows = {value for (value,) in database.execute("SELECT value FROM orders")}
        assert rows == {"late", *(f"order {number}" for number in range(900))}
        assert database.execute("SELECT count(*) FROM orders").fetchone() == (901,)
        assert max(count for (count,) in database.execute("SELECT rows_written FROM transactions")) <= 300


def test_a_writer_that_was_taken_for_dead_ends_and_says_why(tmp_path: Path) -> None:
    code = writer()
    database = sqlite3.connect(tmp_path / "shop.db")
    database.executescript(code.TABLES)
    database.execute("INSERT INTO orders VALUES (1, 7, 'written by another')")
    database.commit()
    with pytest.raises(code.Overtaken, match="partition 1 is beyond 7 already"):
        code.store(database, [Record(6), Record(7)])
    assert database.execute("SELECT at_offset FROM orders").fetchall() == [(7,)], "all or nothing"


def test_an_error_of_the_broker_ends_it(bootstrap: str, tmp_path: Path) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        writer().run(bootstrap, "peak-shaving-nowhere", str(tmp_path / "shop.db"), 10)


class Record:
    """What `store` asks a message for."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"order"
