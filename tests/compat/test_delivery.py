"""R-CON-5: the examples of delivery semantics, killed at their worst moment, started again, and counted."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.compat.clients import Confluent, Record
from tests.compat.conftest import MakeTopic
from tests.compat.killed_at import load
from tests.conftest import ROOT

PROGRAMS = ROOT / "examples" / "delivery"
KILLED_AT = ROOT / "tests" / "compat" / "killed_at.py"
PARTITIONS = 2
RECORDS = 600
BATCH = 50
TIMEOUT_S = 90.0
Place = tuple[int, int]


class Scenario:
    """One program with its own topic and results."""

    def __init__(self, bootstrap: str, topic: str, program: str, results: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.results = results
        self._program = str(PROGRAMS / f"{program}.py")
        self._group = f"{program.replace('_', '-')}-{topic}"
        self._arguments = [bootstrap, topic, str(results)]
        records = [Record(b"%d" % number, partition=number % PARTITIONS) for number in range(RECORDS)]
        Confluent().produce(bootstrap, topic, records)

    def killed(self, function: str, moment: str, count: int) -> None:
        command = [sys.executable, str(KILLED_AT), self._program, function, moment, str(count), *self._arguments]
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()

    def killed_from_outside(self, begun: Callable[[], bool], pause_s: float) -> None:
        """At no moment in particular after it has begun: it may be about to make its tables, or to commit."""
        with self._start() as process:
            wait_for(begun, process)
            time.sleep(pause_s)
            process.kill()

    def finished(self, is_done: Callable[[], bool]) -> None:
        with self._start() as process:
            wait_for(is_done, process)
            process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, self._program, *self._arguments])

    def committed_all(self) -> bool:
        consumer = ck.Consumer({"bootstrap.servers": self.bootstrap, "group.id": self._group})
        places = [ck.TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        held = consumer.committed(places, timeout=TIMEOUT_S)
        consumer.close()
        return sum(max(place.offset, 0) for place in held) == RECORDS

    def lines(self) -> Counter[Place]:
        rows = (line.split() for line in self.results.read_text().splitlines())
        return Counter((int(partition), int(offset)) for partition, offset, _ in rows)

    def rows(self) -> Counter[Place]:
        with sqlite3.connect(self.results) as database:
            return Counter(database.execute("SELECT part, record_offset FROM results").fetchall())

    def handled(self) -> int:
        """How many records the database has behind it; none before it has its tables."""
        if not self.results.exists():
            return 0
        with contextlib.closing(sqlite3.connect(self.results, timeout=TIMEOUT_S)) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'positions'").fetchone():
                return 0
            (count,) = database.execute("SELECT sum(next_offset) FROM positions").fetchone()
        return count or 0

    def goes_on(self) -> Callable[[], bool]:
        """Whether the database is further by then than it is now."""
        before = self.handled()
        return lambda: self.handled() > before

    def all_rows_there(self) -> bool:
        return self.handled() == RECORDS


def wait_for(check: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        assert process.poll() is None, "the program ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lost(handled: Counter[Place]) -> int:
    expected = {(number % PARTITIONS, number // PARTITIONS) for number in range(RECORDS)}
    assert handled.keys() <= expected
    return len(expected - handled.keys())


def doubled(handled: Counter[Place]) -> int:
    return sum(count - 1 for count in handled.values())


@pytest.fixture
def scenario(group_bootstrap: str, group_topic: MakeTopic, tmp_path: Path) -> Callable[[str], Scenario]:
    return lambda program: Scenario(group_bootstrap, group_topic(PARTITIONS), program, tmp_path / "results")


def test_at_most_once_loses_and_never_doubles(scenario: Callable[[str], Scenario]) -> None:
    one = scenario("at_most_once")
    for count in (1, 2, 3):
        one.killed("commit", "after", count)
    one.finished(one.committed_all)
    handled = one.lines()
    assert doubled(handled) == 0
    assert 3 <= lost(handled) <= 3 * BATCH, "died each time between saying it was done and doing it"


def test_at_least_once_doubles_and_never_loses(scenario: Callable[[str], Scenario]) -> None:
    one = scenario("at_least_once")
    for count in (1, 2, 3):
        one.killed("commit", "before", count)
    one.finished(one.committed_all)
    handled = one.lines()
    assert lost(handled) == 0
    assert 3 <= doubled(handled) <= 3 * BATCH, "died each time between doing it and saying so"


@pytest.mark.parametrize(
    ("function", "moment", "count"),
    [
        ("move_position", "before", 75),
        ("store", "after", 30),
        ("commit", "before", 2),
        ("commit", "after", 2),
    ],
)
def test_exactly_once_neither_loses_nor_doubles(
    scenario: Callable[[str], Scenario], function: str, moment: str, count: int
) -> None:
    one = scenario("exactly_once_sqlite")
    for _ in range(2):
        one.killed(function, moment, count)
    one.finished(one.all_rows_there)
    assert (lost(one.rows()), doubled(one.rows())) == (0, 0)


def test_exactly_once_killed_from_outside(scenario: Callable[[str], Scenario]) -> None:
    one = scenario("exactly_once_sqlite")
    rng = random.Random(7)
    one.killed_from_outside(one.results.exists, rng.random() / 50)
    for _ in range(3):
        if not one.all_rows_there():
            one.killed_from_outside(one.goes_on(), rng.random() / 50)
    one.finished(one.all_rows_there)
    assert (lost(one.rows()), doubled(one.rows())) == (0, 0)


class TopicScenario(Scenario):
    """The results are in another topic, for readers of committed records."""

    def __init__(self, bootstrap: str, topic: str, target: str) -> None:
        super().__init__(bootstrap, topic, "exactly_once_topic", Path(target))
        self._target = target

    def written(self) -> Counter[Place]:
        """By a reader that goes up to the last stable offset of now, where all that was begun has ended."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"reader-{self._target}",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([ck.TopicPartition(self._target, number, 0) for number in range(PARTITIONS)])
        found: Counter[Place] = Counter()
        at_end: set[int | None] = set()
        deadline = time.monotonic() + TIMEOUT_S
        while len(at_end) < PARTITIONS:
            assert time.monotonic() < deadline
            for message in consumer.consume(500, timeout=0.2):
                error = message.error()
                if error is not None:
                    assert error.code() == ck.KafkaError._PARTITION_EOF, error
                    at_end.add(message.partition())
                    continue
                partition, offset, _ = (message.value() or b"").split()
                found[int(partition), int(offset)] += 1
        consumer.close()
        return found


@pytest.fixture
def copying(group_bootstrap: str, group_topic: MakeTopic) -> TopicScenario:
    return TopicScenario(group_bootstrap, group_topic(PARTITIONS), group_topic(PARTITIONS))


@pytest.mark.parametrize(
    ("function", "moment", "count"),
    [
        ("write", "after", 75),
        ("write_positions", "before", 2),
        ("write_positions", "after", 2),
        ("commit", "before", 2),
        ("commit", "after", 2),
    ],
)
def test_exactly_once_from_topic_to_topic(copying: TopicScenario, function: str, moment: str, count: int) -> None:
    for _ in range(2):
        copying.killed(function, moment, count)
    copying.finished(copying.committed_all)
    written = copying.written()
    assert (lost(written), doubled(written)) == (0, 0)


def test_a_member_that_was_overtaken_changes_nothing(tmp_path: Path) -> None:
    program = load(str(PROGRAMS / "exactly_once_sqlite.py"))
    database = program.open_database(str(tmp_path / "results"))
    program.move_position(database, "t", 0, 7)
    database.commit()
    assert program.position(database, "t", 0) == 8
    with pytest.raises(program.Overtaken):
        program.move_position(database, "t", 0, 7)
