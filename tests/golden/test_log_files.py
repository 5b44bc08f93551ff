"""Kafka's on-disk formats to the byte (R-LOG-1): files that Apache Kafka 4.1.1 wrote.

`kafka_log_dir` holds two partitions of a broker that was stopped cleanly. `golden` was written by librdkafka with
every codec, idempotent and not (index.interval.bytes=200, segment.ms=1000000, so that it has two segments);
`goldentxn` by a transactional producer: a commit, an abort, a commit.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from headrace.env import Env
from headrace.env.real import real_env
from headrace.model.topics import TopicPartition, topic_id_text
from headrace.records.batch import CONTROL, parse_header
from headrace.records.markers import ABORT, COMMIT, EndMarker, build_marker, read_marker
from headrace.records.reader import read_records
from headrace.storage.checkpoints import (
    read_leader_epochs,
    read_offsets,
    read_topic_id,
    write_leader_epochs,
    write_offsets,
    write_topic_id,
)
from headrace.storage.loading import create_log
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directory import LogDirectory
from headrace.storage.producer_snapshot import decode_snapshot, encode_snapshot
from headrace.storage.resources import StorageResources
from headrace.storage.scan import split_batches
from headrace.storage.segment_index import load_index

KAFKA = Path(__file__).parent / "kafka_log_dir"
GOLDEN = TopicPartition("golden", 0)
TRANSACTIONAL = TopicPartition("goldentxn", 0)
CONFIG = LogConfig(index_interval_bytes=200, segment_ms=1_000_000)


@pytest.fixture
def env() -> Env:
    return real_env()


def batches(partition: TopicPartition) -> list[bytes]:
    found = []
    for path in sorted((KAFKA / str(partition)).glob("*.log")):
        data = path.read_bytes()
        found += [data[position : position + size] for position, size in split_batches(memoryview(data))]
    return found


def open_copy(env: Env, tmp_path: Path) -> LogDirectory:
    shutil.copytree(KAFKA, tmp_path / "data")
    directory = LogDirectory(env, str(tmp_path / "data"))
    directory.open("4L6g3nShT-eMCtK--X86sw", 1)
    directory.load(lambda partition, topic_id: CONFIG)
    return directory


@pytest.mark.parametrize("crashed", [False, True])
def test_kafkas_directory_is_read(env: Env, tmp_path: Path, crashed: bool) -> None:
    directory = open_copy(env, tmp_path)
    assert directory.clean_stop
    if crashed:
        directory.close(clean=False)
        directory = LogDirectory(env, str(tmp_path / "data"))
        directory.open("4L6g3nShT-eMCtK--X86sw", 1)
        directory.load(lambda partition, topic_id: CONFIG)
        assert not directory.clean_stop
    log = directory.logs[GOLDEN]
    assert (log.start_offset, log.end_offset, len(log.segments)) == (0, 54, 2)
    assert log.leader_epochs.entries == ((0, 0),)
    assert [(row.producer_id, row.last_sequence) for row in log.producers.describe()] == [(0, 8), (1, 8), (2, 8)]
    assert log.find_offset_by_timestamp(1_700_000_000_000 + 400_000 * 4) is not None
    transactional = directory.logs[TRANSACTIONAL]
    assert transactional.end_offset == transactional.last_stable_offset(12) == 12
    directory.close(clean=False)


def test_every_codec_of_librdkafka_is_read() -> None:
    found = batches(GOLDEN)
    assert {parse_header(batch).codec for batch in found} == {0, 1, 2, 3, 4}
    records = [record for batch in found for record in read_records(batch)]
    assert [record.offset for record in records] == list(range(54))
    for number, record in enumerate(records):
        producer, batch, place = number // 9, number // 3 % 3, number % 3
        assert record.timestamp == 1_700_000_000_000 + producer * 400_000 + batch * 1000 - place
        assert record.key == (None if place == 0 else f"key-{place}".encode())
        assert record.value == (None if place == 1 else f"value-{producer}-{batch}-{place}-".encode() * 8)
        assert record.headers == ((("h", b"x"), ("n", None)) if place == 2 else ())


def last_batches(snapshot: Path) -> bytes:
    """What a reader knows that expects one entry for a producer, as Kafka writes it; we have more of each."""
    rows = decode_snapshot(snapshot.read_bytes())
    assert rows is not None
    return encode_snapshot(list({row.producer_id: row for row in rows}.values()))


def files_of(directory: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in suffixes}


def test_the_same_batches_make_the_same_files(env: Env, tmp_path: Path) -> None:
    """Produced again to us, every file of the partition comes out as Kafka's, byte for byte.

    Snapshots tell the same of the last batch of each producer.
    """
    kafka = KAFKA / str(GOLDEN)
    topic_id = read_topic_id(env.disk, str(kafka / "partition.metadata"))
    assert topic_id is not None
    ours = tmp_path / "golden-0"
    log = create_log(str(ours), GOLDEN, topic_id, CONFIG, StorageResources.create(env))
    for batch in batches(GOLDEN):
        log.append_as_leader(bytes(8) + batch[8:], 0)
    log.close()
    assert {path.name for path in ours.iterdir()} == {path.name for path in kafka.iterdir()}
    for path in kafka.iterdir():
        same = last_batches if path.suffix == ".snapshot" else Path.read_bytes
        assert same(ours / path.name) == same(path), path.name


def test_the_transactional_log_makes_the_same_files(env: Env, tmp_path: Path) -> None:
    """Control batches included, as a follower gets them."""
    log = follower(env, tmp_path / "goldentxn-0", TRANSACTIONAL)
    log.close()
    suffixes = (".log", ".index", ".timeindex", ".txnindex")
    assert files_of(tmp_path / "goldentxn-0", *suffixes) == files_of(KAFKA / "goldentxn-0", *suffixes)
    snapshots = list((KAFKA / "goldentxn-0").glob("*.snapshot"))
    assert snapshots
    for path in snapshots:
        assert last_batches(tmp_path / "goldentxn-0" / path.name) == last_batches(path)


def test_our_markers_are_kafkas() -> None:
    """A marker from its own facts is Kafka's, byte for byte."""
    found = [batch for batch in batches(TRANSACTIONAL) if parse_header(batch).attributes & CONTROL]
    kinds = []
    for batch in found:
        header = parse_header(batch)
        kind, coordinator_epoch = read_marker(batch)
        kinds.append(kind)
        marker = EndMarker(header.producer_id, header.producer_epoch, kind == COMMIT, coordinator_epoch)
        ours = build_marker(marker, header.max_timestamp, header.base_offset, header.leader_epoch)
        assert bytes(ours) == batch
    assert kinds == [COMMIT, ABORT, COMMIT]


@pytest.mark.parametrize("crashed", [False, True])
def test_aborted_transactions_of_kafka_are_known(env: Env, tmp_path: Path, crashed: bool) -> None:
    """From Kafka's index, and rebuilt from the markers if it is lost."""
    shutil.copytree(KAFKA, tmp_path / "data")
    index = tmp_path / "data" / str(TRANSACTIONAL) / "00000000000000000000.txnindex"
    kafkas = index.read_bytes()
    if crashed:
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)
        (tmp_path / "data" / "recovery-point-offset-checkpoint").unlink()
        index.unlink()
    directory = LogDirectory(env, str(tmp_path / "data"))
    directory.open("4L6g3nShT-eMCtK--X86sw", 1)
    directory.load(lambda partition, topic_id: CONFIG)
    log = directory.logs[TRANSACTIONAL]
    assert log.has_aborted
    found = log.read(0, 1 << 20, 12)
    assert found is not None
    assert [tuple(row) for row in log.aborted_transactions(0, found)] == [struct.unpack(">hqqqq", kafkas)[1:]]
    assert index.read_bytes() == kafkas
    directory.close(clean=False)


def follower(env: Env, directory: Path, partition: TopicPartition) -> Log:
    topic_id = read_topic_id(env.disk, str(KAFKA / str(partition) / "partition.metadata"))
    assert topic_id is not None
    log = create_log(str(directory), partition, topic_id, CONFIG, StorageResources.create(env))
    log.append_as_follower(b"".join(batches(partition)))
    return log


def test_indexes_and_snapshots_round_trip(env: Env, tmp_path: Path) -> None:
    for path in KAFKA.glob("*/*.index"):
        size = path.with_suffix(".log").stat().st_size
        index = load_index(env.disk, str(path), str(path.with_suffix(".timeindex")), size)
        assert index is not None
        index.forget_files()
        index.save(env.disk, str(tmp_path / "x.index"), str(tmp_path / "x.timeindex"))
        assert (tmp_path / "x.index").read_bytes() == path.read_bytes()
        assert (tmp_path / "x.timeindex").read_bytes() == path.with_suffix(".timeindex").read_bytes()
    for path in KAFKA.glob("*/*.snapshot"):
        entries = decode_snapshot(path.read_bytes())
        assert entries
        assert encode_snapshot(entries) == path.read_bytes()


def test_checkpoints_round_trip(env: Env, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    for path in KAFKA.glob("*-offset-checkpoint"):
        offsets = read_offsets(env.disk, str(path))
        assert offsets is not None
        write_offsets(env.disk, copy, offsets)
        assert Path(copy).read_bytes() == path.read_bytes()
    for path in KAFKA.glob("*/leader-epoch-checkpoint"):
        entries = read_leader_epochs(env.disk, str(path))
        assert entries == [(0, 0)]
        write_leader_epochs(env.disk, copy, entries)
        assert Path(copy).read_bytes() == path.read_bytes()
    for path in KAFKA.glob("*/partition.metadata"):
        topic_id = read_topic_id(env.disk, str(path))
        assert topic_id is not None
        assert topic_id_text(topic_id) in path.read_text()
        write_topic_id(env.disk, copy, topic_id)
        assert Path(copy).read_bytes() == path.read_bytes()
