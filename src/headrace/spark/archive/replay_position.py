"""How far a replay has come, kept where its records go: the offset of a consumer group, stored in the transaction.

The position is one number, the number of archived rows of the topic that were replayed, as the offset of partition
0 of the destination in a group that nobody is a member of. It becomes visible with the records of the same
transaction, or not at all. The metadata beside it names the slice: a position of another slice is refused.

A broker forgets it as it does other groups' offsets (`offsets.retention.minutes`, a week).
"""

from __future__ import annotations

from headrace.client.errors import kafka_error
from headrace.model.errors import ErrorCode
from headrace.spark.client.cluster import BlockingCluster
from headrace.spark.client.connection import BlockingConnection
from headrace.spark.client.transactions import TRANSACTION_COORDINATOR, InTransaction
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

CLASSIC_ADD_OFFSETS = 3
CLASSIC_TXN_COMMIT = 3
ONE_GROUP = 7
"""OffsetFetch: from the next version on it asks for several groups."""


class ReplayPosition:
    def __init__(self, cluster: BlockingCluster, group: str, topic: str) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic

    def stored(self) -> tuple[int, str] | None:
        """The position and its slice; None if there is none."""

        def attempt() -> tuple[int, str] | None:
            with self._cluster.borrow(self._cluster.coordinator(self._group)) as connection:
                return self._fetch(connection)

        return self._cluster.retrying(attempt)

    def store(self, transaction: InTransaction, position: int, of: str) -> None:
        """Store it in the open transaction, or begin one with it."""

        def join() -> None:
            name = transaction.transactional_id
            coordinator = self._cluster.coordinator(name, TRANSACTION_COORDINATOR)
            with self._cluster.borrow(coordinator) as connection:
                request = AddOffsetsToTxnRequest(
                    transactional_id=name,
                    producer_id=transaction.identity.producer_id,
                    producer_epoch=transaction.identity.epoch,
                    group_id=self._group,
                )
                answer = connection.request(request, AddOffsetsToTxnResponse, highest=CLASSIC_ADD_OFFSETS)
            if answer.error_code:
                raise kafka_error(answer.error_code, f"the position of {self._group} cannot join its transaction")

        def write() -> None:
            with self._cluster.borrow(self._cluster.coordinator(self._group)) as connection:
                self._commit(connection, transaction, position, of)

        self._cluster.retrying(join)
        self._cluster.retrying(write)

    def _fetch(self, connection: BlockingConnection) -> tuple[int, str] | None:
        request = OffsetFetchRequest(
            group_id=self._group,
            topics=[OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])],
            require_stable=True,
        )
        response = connection.request(request, OffsetFetchResponse, highest=ONE_GROUP)
        if response.error_code:
            raise kafka_error(response.error_code, f"the position of {self._group}")
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise kafka_error(answer.error_code, f"the position of {self._group}")
                if answer.committed_offset >= 0:
                    return answer.committed_offset, answer.metadata or ""
        return None

    def _commit(self, connection: BlockingConnection, transaction: InTransaction, position: int, of: str) -> None:
        stored = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=position, committed_metadata=of
        )
        request = TxnOffsetCommitRequest(
            transactional_id=transaction.transactional_id,
            group_id=self._group,
            producer_id=transaction.identity.producer_id,
            producer_epoch=transaction.identity.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._topic, partitions=[stored])],
        )
        response = connection.request(request, TxnOffsetCommitResponse, highest=CLASSIC_TXN_COMMIT)
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code:
                    raise kafka_error(answer.error_code, f"the position of {self._group} was refused")
