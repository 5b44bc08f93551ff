"""A transactional producer, one request at a time and of any version: for answers that no client library shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headrace.model.errors import ErrorCode
from headrace.records.batch import TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.compat.group_client import GroupClient

WAIT_S = 60.0
E = ErrorCode
_NOT_YET = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)


class TransactionClient(GroupClient):
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        super().__init__(bootstrap)
        self.id = transactional_id
        self.producer_id = self.epoch = -1
        self.sequence = 0

    def find(self) -> None:
        """Until the broker is ready to coordinate the id."""
        request = FindCoordinatorRequest(coordinator_keys=[self.id], key_type=1)
        self.until(lambda: self.call(request, 4).coordinators[0].error_code, lambda code: code == 0)
        self.until(lambda: self.describe().error_code, lambda code: code not in _NOT_YET)

    def until(self, ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + WAIT_S
        while not good(answer := ask()):
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)
        return answer

    def init(self, version: int = 5, **fields: Any) -> ErrorCode:
        values = {"transactional_id": self.id, "transaction_timeout_ms": 60_000, **fields}
        response = self.call(InitProducerIdRequest(**values), version)
        if not response.error_code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequence = 0
        return ErrorCode(response.error_code)

    def init_until_ready(self, **fields: Any) -> ErrorCode:
        code: ErrorCode = self.until(
            lambda: self.init(**fields), lambda code: code not in (*_NOT_YET, E.CONCURRENT_TRANSACTIONS)
        )
        return code

    def add(self, topic: str, *partitions: int, version: int = 3, **fields: Any) -> list[ErrorCode]:
        named = AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        who = {"producer_id": self.producer_id, "producer_epoch": self.epoch, **fields}
        if version < 4:
            values = {f"v3_and_below_{name}": value for name, value in who.items()}
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id, v3_and_below_topics=[named], **values
            )
            (result,) = self.call(request, version).results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(transactional_id=self.id, topics=[named], **who)
            answer = self.call(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            ((result,),) = [one.topic_results for one in answer.results_by_transaction]
        by_index = {one.partition_index: one.partition_error_code for one in result.results_by_partition}
        return [ErrorCode(by_index[index]) for index in partitions]

    def add_offsets(self, group_id: str, version: int = 4, **fields: Any) -> ErrorCode:
        who = {"producer_id": self.producer_id, "producer_epoch": self.epoch, **fields}
        request = AddOffsetsToTxnRequest(transactional_id=self.id, group_id=group_id, **who)
        return ErrorCode(self.call(request, version).error_code)

    def end(self, commit: bool = True, version: int = 4, **fields: Any) -> ErrorCode:
        who = {"producer_id": self.producer_id, "producer_epoch": self.epoch, **fields}
        response = self.call(EndTxnRequest(transactional_id=self.id, committed=commit, **who), version)
        if version >= 5 and not response.error_code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequence = 0
        return ErrorCode(response.error_code)

    def produce(self, topic: str, partition: int = 0, version: int = 11, **stamp: Any) -> ErrorCode:
        producer = ProducerStamp(
            stamp.get("producer_id", self.producer_id),
            stamp.get("epoch", self.epoch),
            stamp.get("sequence", self.sequence),
        )
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch([NewRecord(b"v", timestamp=now_ms)], attributes=TRANSACTIONAL, producer=producer)
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=partition, records=bytes(batch))]
        )
        named = stamp.get("transactional_id", self.id)
        request = ProduceRequest(transactional_id=named, acks=-1, timeout_ms=30_000, topic_data=[data])
        ((result,),) = [one.partition_responses for one in self.call(request, version).responses]
        if not result.error_code:
            self.sequence += 1
        return ErrorCode(result.error_code)

    def describe(self) -> Any:
        (state,) = self.call(DescribeTransactionsRequest(transactional_ids=[self.id]), 0).transaction_states
        return state

    def until_state(self, title: str) -> Any:
        return self.until(self.describe, lambda state: state.transaction_state == title)
