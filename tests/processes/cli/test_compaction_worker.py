"""The compaction worker as a process: it ends with its broker, silently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.env.worker_process import WorkerProcess
from headrace.storage.compaction.messages import CleaningRequest, SegmentToClean, encode_request

MODULE = "headrace.cli.broker.compaction_worker"
TIMEOUT_S = 60


def request(directory: Path) -> bytes:
    return encode_request(
        CleaningRequest(
            directory=str(directory),
            sources=(SegmentToClean(base_offset=0, size=1000, end_offset=10),),
            dirty_offset=0,
            upper_offset=10,
            now_ms=0,
            delete_retention_ms=0,
            segment_bytes=1 << 20,
            segment_index_bytes=1 << 20,
            index_interval_bytes=4096,
            decompressed_bytes=1 << 20,
            memory_bytes=1 << 20,
            bytes_per_second=0.0,
        )
    )


@pytest.mark.parametrize("asked", [True, False])
def test_a_worker_whose_broker_is_gone_ends_quietly(tmp_path: Path, asked: bool) -> None:
    """Nobody takes its answer (the files are gone too, as after a test), or nobody asks."""
    taking, giving = os.pipe()
    os.close(taking)
    worker = subprocess.Popen(
        [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=giving, stderr=subprocess.PIPE
    )
    os.close(giving)
    assert worker.stdin is not None
    assert worker.stderr is not None
    if asked:
        worker.stdin.write(request(tmp_path / "gone"))
        worker.stdin.flush()
    else:
        worker.stdin.close()
    try:
        assert (worker.wait(TIMEOUT_S), worker.stderr.read()) == (0, b"")
    finally:
        worker.kill()
        worker.stdin.close()
        worker.stderr.close()


async def test_a_ctrl_c_does_not_reach_a_worker() -> None:
    worker = await WorkerProcess.start(MODULE)
    try:
        pid = worker._process.pid
        assert os.getpgid(pid) == pid != os.getpgrp()
    finally:
        await worker.close()
