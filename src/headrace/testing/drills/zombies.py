"""A leader that is stopped for longer than its lease must answer nothing stale when it goes on."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from headrace.testing.drills.scene import Fault, Scene, repeat
from headrace.testing.drills.workload import TOPIC
from headrace.testing.history import value_of
from headrace.testing.process_cluster import wait_until
from headrace.testing.raw_client import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    ConnectionClosed,
    RawClient,
    build_batch,
    fetch_body,
    frame,
    produce_body,
    request_header,
    text,
)

PROBER = 900
"""The producer number of records sent past the load."""
SETTLE_SECONDS = 2.0
ANSWER_SECONDS = 60.0
PROBE_TIMEOUT_MS = 3_000
UNANSWERED = -100
LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 2
CONSUMER, LATEST = -1, -1
_numbers = iter(range(1_000_000))


def probe_value() -> bytes:
    return value_of(PROBER, next(_numbers))


class Probe:
    """A request that waits in the socket of a stopped broker."""

    def __init__(self, bootstrap: str, what: str, api: int, version: int, body: bytes, answer_at: int) -> None:
        self.what = what
        self._answer_at = answer_at
        self._client = RawClient(bootstrap, ANSWER_SECONDS)
        self._request = frame(request_header(api, version, 1) + body)

    def send(self) -> None:
        self._client.send(self._request)

    def error(self) -> int:
        """The partition's error in the answer, 0 if it was obeyed; UNANSWERED if the connection was closed."""
        try:
            answer = self._client.receive_frame()
        except (ConnectionClosed, TimeoutError):
            return UNANSWERED
        finally:
            self._client.close()
        return int(struct.unpack_from(">h", answer, self._answer_at)[0])


def probes(bootstrap: str, partition: int, epoch: int) -> Sequence[Probe]:
    """Two writes, a read by a client that knows this broker as the leader of `epoch`, and a look at the end."""
    name = 2 + len(TOPIC)
    produced_at = 4 + 4 + name + 4 + 4
    fetched_at = 4 + 4 + 2 + 4 + 4 + name + 4 + 4
    listed_at = 4 + 4 + 4 + name + 4 + 4
    writes = [
        Probe(
            bootstrap,
            f"acks={acks} write",
            PRODUCE,
            PRODUCE_VERSION,
            produce_body(TOPIC, partition, build_batch([probe_value()]), acks, PROBE_TIMEOUT_MS),
            produced_at,
        )
        for acks in (1, -1)
    ]
    body = fetch_body(TOPIC, partition, 0, leader_epoch=epoch)
    read = Probe(bootstrap, "read", FETCH, FETCH_VERSION, body, fetched_at)
    end = struct.pack(">ibi", CONSUMER, 0, 1) + text(TOPIC) + struct.pack(">iiq", 1, partition, LATEST)
    return [*writes, read, Probe(bootstrap, "end offset", LIST_OFFSETS, LIST_OFFSETS_VERSION, end, listed_at)]


def pause_leader(pause_s: float) -> Fault:
    def fault(scene: Scene, seconds: float) -> None:
        def pause() -> None:
            stopped = scene.leader()
            led = [part for part, state in scene.states().items() if state.leader == stopped]
            broker = scene.brokers[stopped]
            epochs = {part: leader_epoch(broker.bootstrap, part) for part in led}
            waiting = [(part, probe) for part in led for probe in probes(broker.bootstrap, part, epochs[part])]
            others = scene.others(stopped)
            scene.note_fault(f"SIGSTOP leader {stopped}")
            broker.pause()
            began = time.monotonic()
            wait_until(
                lambda: all(scene.states_by(others)[part].leader not in (-1, stopped) for part in led),
                "another broker leads what the stopped one led",
            )
            scene.notes.append(f"replaced after {time.monotonic() - began:.1f} s")
            for _, probe in waiting:
                probe.send()
            time.sleep(max(0.0, pause_s - (time.monotonic() - began)))
            broker.resume()
            scene.note_event("SIGCONT")
            for part, probe in waiting:
                scene.check(
                    probe.error() != 0,
                    f"{TOPIC}-{part}: the deposed leader answered a request as if it led ({probe.what})",
                )
            scene.until_acked()
            time.sleep(SETTLE_SECONDS)

        repeat(scene, seconds, pause)

    return fault


def leader_epoch(bootstrap: str, partition: int) -> int:
    """The latest epoch in a leader's log: what its last batch says."""
    offset, epoch = 0, -1
    with RawClient(bootstrap) as client:
        offset = client.fetch(TOPIC, partition, 0).high_watermark - 1
        for batch in client.fetch(TOPIC, partition, max(offset, 0)).batches:
            epoch = batch.leader_epoch
    return epoch
