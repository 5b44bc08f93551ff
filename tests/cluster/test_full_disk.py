"""A full disk (R-LOG-8): a small tmpfs with everything on it. Writers are refused, readers go on, space heals."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.errors import ErrorCode
from headrace.records.batch import checked_header
from headrace.storage.scan import split_batches
from headrace.testing.process import BrokerProcess, ServerFailed
from headrace.testing.raw_client import RawClient, build_batch
from tests.compat.confluent_admin import AdminClient, NewTopic

pytestmark = pytest.mark.headrace_only
VALUE = b"x" * 20_000
LISTEN = ("--override", "listeners=PLAINTEXT://127.0.0.1:0")
FILLER_BYTES = 3 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def broker(small_disk: Path) -> Iterator[BrokerProcess]:
    (small_disk / "filler").write_bytes(b"f" * FILLER_BYTES)
    settings = {
        "log.dirs": str(small_disk / "data"),
        "log.flush.offset.checkpoint.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
    }
    with BrokerProcess(settings) as running:
        topics = [NewTopic("t", num_partitions=2, config={"segment.bytes": "1048576", "retention.ms": "-1"})]
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for made in admin.create_topics(topics).values():
            made.result(60)
        yield running


def fill(client: RawClient) -> list[int]:
    """Produce until refused; the offsets that were acknowledged."""
    offsets: list[int] = []
    while (answer := client.produce("t", 0, build_batch([VALUE]))).error == 0:
        offsets.append(answer.base_offset)
        assert len(offsets) < 1000
    assert answer.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left" in (answer.error_message or "")
    return offsets


def stored(client: RawClient) -> list[int]:
    """The base offsets that a reader gets, each batch checked to its last byte."""
    offsets: list[int] = []
    while records := client.fetch("t", 0, offsets[-1] + 1 if offsets else 0).records:
        for position, size in split_batches(memoryview(records)):
            offsets.append(checked_header(memoryview(records)[position : position + size]).base_offset)
    return offsets


def test_a_full_disk_refuses_writers_and_heals(broker: BrokerProcess, small_disk: Path) -> None:
    """Nothing half-written is served, nothing acknowledged is lost, and the broker needs no restart."""
    with RawClient(broker.bootstrap) as client:
        acknowledged = fill(client)
        assert len(acknowledged) > 100
        assert stored(client) == acknowledged
        time.sleep(1)  # checkpoints and retention meet the full disk too
        assert client.produce("t", 0, build_batch([VALUE])).error == ErrorCode.KAFKA_STORAGE_ERROR
        assert stored(client) == acknowledged
        (small_disk / "filler").unlink()
        more = fill(client)
        assert more
        assert stored(client) == acknowledged + more


def refusal_to_start(broker: BrokerProcess) -> str:
    """Empty if it starts."""
    try:
        broker.start()
    except ServerFailed as refusal:
        return str(refusal)
    return ""


def test_a_crash_on_a_full_disk(broker: BrokerProcess, small_disk: Path) -> None:
    """The next start works, or names the disk; with space again everything acknowledged is there."""
    with RawClient(broker.bootstrap) as client:
        acknowledged = fill(client)
    broker.kill()
    refusal = refusal_to_start(broker)
    assert "Traceback" not in refusal
    if refusal:
        # The log says it as the system does, the store as SQLite does: not always that the disk is full.
        assert re.search("No space left on device|disk is full|no space is left|disk I/O error", refusal)
    else:
        with RawClient(broker.bootstrap) as client:
            assert stored(client) == acknowledged
        broker.kill()
    (small_disk / "filler").unlink()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert stored(client) == acknowledged
        assert client.produce("t", 0, build_batch([VALUE])).error == 0


def test_a_clean_stop_on_a_full_disk_loses_nothing(broker: BrokerProcess, small_disk: Path) -> None:
    with RawClient(broker.bootstrap) as client:
        acknowledged = fill(client)
    broker.terminate()
    (small_disk / "filler").unlink()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert stored(client) == acknowledged


def test_a_start_on_a_full_disk_says_so(small_disk: Path) -> None:
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    started = subprocess.run(
        [sys.executable, "-m", "headrace", "start", "--data-dir", str(small_disk / "data"), *LISTEN],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert started.returncode == 1
    assert "no space is left on its disk" in started.stderr or "No space left on device" in started.stderr
    assert "Traceback" not in started.stderr
    assert "Unknown" not in started.stderr
