"""One request at a time, of any version, about groups: for answers that no client library shows as they are."""

from __future__ import annotations

import struct
import time
from types import TracebackType
from typing import Any, Self

from headrace.testing.raw_client import RawClient, frame, request_header
from headrace.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_configs,
    describe_groups,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
)
from headrace.wire.schema import Request

CONSUMER = "consumer"
TIMEOUT_S = 60.0
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
_MODULES = (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_configs,
    describe_groups,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
)
RESPONSES: dict[str, Any] = {
    name: value for module in _MODULES for name, value in vars(module).items() if name.endswith("Response")
}


class GroupClient:
    """A connection to a broker that coordinates everything: there is only one."""

    def __init__(self, bootstrap: str, client_id: str = "tester") -> None:
        self._raw = RawClient(bootstrap, TIMEOUT_S)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    def send(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        head = request_header(request.api_key, version, self._correlation_id, self._client_id)
        tags = b"\0" if version >= request.flexible_since else b""
        self._raw.send(frame(head + tags + request.encode(version)))

    def receive(self, request: Request, version: int) -> Any:
        answer = self._raw.receive_frame()
        assert struct.unpack_from(">i", answer)[0] == self._correlation_id
        response = RESPONSES[type(request).__name__.replace("Request", "Response")]
        return response.decode(answer, version, 5 if version >= request.flexible_since else 4)

    def call(self, request: Request, version: int) -> Any:
        self.send(request, version)
        return self.receive(request, version)

    def wait_for_coordinator(self, group_id: str) -> None:
        """Until the broker is ready to coordinate the group."""
        deadline = time.monotonic() + TIMEOUT_S
        request = find_coordinator.FindCoordinatorRequest(key=group_id)
        probe = offset_fetch.OffsetFetchRequest(group_id=group_id, topics=[])
        while time.monotonic() < deadline:
            if self.call(request, 1).error_code == 0 and self.call(probe, 5).error_code == 0:
                return
            time.sleep(0.05)
        raise AssertionError(f"no coordinator for {group_id}")

    # -- the classic protocol, one member a client

    def join(self, group_id: str, member_id: str = "", version: int = 5, **values: Any) -> Any:
        """Joins; a new member first learns its id and joins again with it."""
        fields: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": CONSUMER,
            "protocols": [join_group.JoinGroupRequestProtocol(name="range", metadata=subscription())],
            **values,
        }
        request = join_group.JoinGroupRequest(group_id=group_id, member_id=member_id, **fields)
        response = self.call(request, version)
        if response.error_code == 79 and not member_id:
            request.member_id = response.member_id
            response = self.call(request, version)
        return response

    def sync(self, group_id: str, generation: int, member_id: str, version: int = 3, **values: Any) -> Any:
        request = sync_group.SyncGroupRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, **values
        )
        return self.call(request, version)

    def settle(self, group_id: str, **values: Any) -> Any:
        """Joins a group of one and becomes stable; the JoinGroup response."""
        joined = self.join(group_id, **values)
        assert joined.error_code == 0, joined
        own = sync_group.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
        synced = self.sync(
            group_id,
            joined.generation_id,
            joined.member_id,
            group_instance_id=values.get("group_instance_id"),
            assignments=[own],
        )
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        return joined

    def beat(self, group_id: str, generation: int, member_id: str, instance_id: str | None = None) -> int:
        request = heartbeat.HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return int(self.call(request, 3).error_code)

    def commit(
        self, group_id: str, topic: str, offset: int, version: int = 7, partition: int = 0, **values: Any
    ) -> int:
        """The error code of one position."""
        metadata = values.pop("metadata", "")
        one = offset_commit.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = offset_commit.OffsetCommitRequest(
            group_id=group_id,
            topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[one])],
            **values,
        )
        (answered,) = self.call(request, version).topics
        return int(answered.partitions[0].error_code)

    def committed(self, group_id: str, topic: str, partition: int = 0) -> int:
        request = offset_fetch.OffsetFetchRequest(
            group_id=group_id,
            topics=[offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])],
        )
        response = self.call(request, 5)
        assert response.error_code == 0
        return int(response.topics[0].partitions[0].committed_offset)


def subscription(*topics: str) -> bytes:
    """What a consumer says in JoinGroup, version 0."""
    body = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        body += struct.pack(">h", len(topic)) + topic.encode()
    return body + struct.pack(">i", -1)
