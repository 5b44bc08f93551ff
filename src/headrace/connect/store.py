"""Where connectors store what must survive them: one compacted topic with a JSON value for each key.

    position/<connector>/<task>   where a source is; written in the transaction of its records
    schema/<topic>                what its records look like; in the same transaction when it changes
    status/<connector>            how a run is doing; every few seconds, outside of transactions

Reading goes up to the end of the log and looks at the markers itself. A read_committed reader would stop at the
first open transaction of any connector, and so might not see our own last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.client.admin import NewTopic, create_topics
from headrace.client.cluster import Cluster
from headrace.client.fetching import Fetched, FetchLimits, RecordReader
from headrace.client.offsets import offset_ranges
from headrace.connect.api import TryAgain
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import CONTROL, TRANSACTIONAL, checked_header
from headrace.records.builder import NewRecord
from headrace.records.markers import COMMIT, read_marker
from headrace.records.reader import Record, read_records

STATE_TOPIC = "headrace.connectors"
STATE_PARTITION = TopicPartition(STATE_TOPIC, 0)
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
MAX_EMPTY_POLLS = 10
"""In a row. A broker that is throttled, or has just become the leader, may give nothing for a moment: what is not
read yet may be the last position of a source."""
POSITION, SCHEMA, STATUS = "position", "schema", "status"
StoredState = dict[str, dict[str, Any]]


def position_key(connector: str, task: str) -> str:
    return f"{POSITION}/{connector}/{task}"


def schema_key(topic: str) -> str:
    return f"{SCHEMA}/{topic}"


def status_key(connector: str) -> str:
    return f"{STATUS}/{connector}"


def state_record(key: str, value: Mapping[str, Any] | None, timestamp_ms: int) -> NewRecord:
    text = None if value is None else json.dumps(value, separators=(",", ":")).encode()
    return NewRecord(text, key.encode(), timestamp_ms)


async def ensure_topic(cluster: Cluster, topic: NewTopic) -> None:
    """Create it unless it exists; another process may do so at the same time."""
    view = await cluster.metadata([topic.name])
    if topic.name in view.topics:
        return
    error = (await create_topics(cluster, [topic]))[topic.name]
    if error is not None and error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise KafkaError(error.code, f"cannot create the topic {topic.name}: {error.message or error.code.name}")

    async def known() -> None:
        view = await cluster.metadata([topic.name])
        if topic.name not in view.topics:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name} was just created")

    await cluster.retrying(known)


async def ensure_state_topic(cluster: Cluster) -> None:
    await ensure_topic(cluster, NewTopic(STATE_TOPIC, 1, configs=TOPIC_CONFIGS))


async def read_state(cluster: Cluster) -> StoredState:
    """The last committed value of every key."""
    view = await cluster.metadata([STATE_TOPIC])
    if STATE_TOPIC not in view.topics:
        return {}
    first, end = (await offset_ranges(cluster, [STATE_PARTITION]))[STATE_PARTITION]
    reader = RecordReader(cluster, {STATE_PARTITION: first}, FetchLimits())
    scan = CommittedScan()
    empty = 0
    while reader.positions[STATE_PARTITION] < end:
        before = reader.positions[STATE_PARTITION]
        for fetched in await reader.poll():
            scan.take(fetched)
        empty = empty + 1 if reader.positions[STATE_PARTITION] == before else 0
        if empty == MAX_EMPTY_POLLS:
            raise TryAgain(f"the topic {STATE_TOPIC} ends at offset {end}, and cannot be read beyond {before}")
    return scan.state


class CommittedScan:
    """Follows the transactions of all producers in a log: what is open at its end does not count."""

    def __init__(self) -> None:
        self.state: StoredState = {}
        self._open: dict[int, list[Record]] = {}

    def take(self, fetched: Fetched) -> None:
        for header, batch in fetched.batches:
            checked_header(batch)
            if header.attributes & CONTROL:
                records = self._open.pop(header.producer_id, [])
                if read_marker(batch)[0] == COMMIT:
                    self._apply(records)
            elif header.attributes & TRANSACTIONAL:
                self._open.setdefault(header.producer_id, []).extend(read_records(batch))
            else:
                self._apply(list(read_records(batch)))

    def _apply(self, records: list[Record]) -> None:
        for record in records:
            key = (record.key or b"").decode()
            if record.value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = json.loads(record.value)


def under(state: StoredState, *prefix: str) -> StoredState:
    """What is stored below a key, by the rest of its key."""
    start = "/".join(prefix) + "/"
    return {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}
