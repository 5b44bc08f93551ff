"""Files of replicas are compared by whole batches below an offset."""

from __future__ import annotations

from pathlib import Path

from headrace.testing.raw_client import BatchShape, build_batch
from headrace.testing.replica_files import differ, differ_below_noted, noted_high_watermark, replica_bytes

FIRST, SECOND, OTHER = (
    build_batch([b"a", b"b"], BatchShape(base_offset=0)),
    build_batch([b"c"], BatchShape(base_offset=2)),
    build_batch([b"d"], BatchShape(base_offset=2)),
)


def replica(root: Path, name: str, *segments: bytes, high_watermark: int = 0) -> Path:
    directory = root / name / "t-0"
    directory.mkdir(parents=True)
    for number, data in enumerate(segments):
        (directory / f"{number:020}.log").write_bytes(data)
    (directory.parent / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {high_watermark}\n")
    return directory


def test_batches_below_an_offset_over_all_segments(tmp_path: Path) -> None:
    one = replica(tmp_path, "1", FIRST, SECOND)
    assert replica_bytes(one) == FIRST + SECOND
    assert replica_bytes(one, 3) == FIRST + SECOND
    assert replica_bytes(one, 2) == FIRST
    assert replica_bytes(one, 1) == b""


def test_a_tail_that_is_torn_or_not_committed_does_not_count(tmp_path: Path) -> None:
    one = replica(tmp_path, "1", FIRST + SECOND, high_watermark=2)
    two = replica(tmp_path, "2", FIRST + OTHER[:-1], high_watermark=3)
    assert differ([one, two])
    assert differ([one, two], 3)
    assert not differ([one, two], 2)
    assert not differ_below_noted([one, two])
    assert (noted_high_watermark(one), noted_high_watermark(two)) == (2, 3)


def test_another_value_below_the_high_watermark_is_found(tmp_path: Path) -> None:
    one = replica(tmp_path, "1", FIRST + SECOND, high_watermark=3)
    two = replica(tmp_path, "2", FIRST + OTHER, high_watermark=3)
    assert differ_below_noted([one, two])
