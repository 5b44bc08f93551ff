"""The requests of a transactional producer, and what their answers mean: without I/O, for clients of any kind.

The versions are those in which the client adds partitions itself and the epoch stays for all transactions of one
producer (before KIP-890's second part): every broker has them, and an EndTxn that is repeated after a lost
connection means the same. Where a client wants more, it names a higher version.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.errors import kafka_error
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.builder import ProducerStamp
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TRANSACTION_COORDINATOR = 1
HIGHEST_INIT_PRODUCER_ID = 5
HIGHEST_ADD_PARTITIONS = 3
HIGHEST_PRODUCE = 11
HIGHEST_END_TXN = 4
FENCED = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Somebody else uses the transactional id now, or the coordinator has ended what was open."""


def init_request(transactional_id: str, timeout_ms: int) -> InitProducerIdRequest:
    """Takes the id: its former producer is fenced, and what that left open is aborted."""
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)


def producer_of(response: InitProducerIdResponse, transactional_id: str) -> ProducerStamp:
    if response.error_code:
        raise kafka_error(response.error_code, f"transactional id {transactional_id}")
    return ProducerStamp(response.producer_id, response.producer_epoch, 0)


def add_request(
    transactional_id: str, producer: ProducerStamp, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
        ],
    )


def check_added(response: AddPartitionsToTxnResponse) -> None:
    """Raises the error of a partition; the one that says more than "another one failed" if there is one."""
    errors: list[KafkaError] = []
    for topic in response.results_by_topic_v3_and_below:
        for result in topic.results_by_partition:
            if result.partition_error_code:
                place = TopicPartition(topic.name, result.partition_index)
                errors.append(kafka_error(result.partition_error_code, f"partition {place}"))
    told = [error for error in errors if error.code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    for error in told or errors:
        raise error


def end_request(transactional_id: str, producer: ProducerStamp, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=commit,
    )


def check_ended(response: EndTxnResponse, transactional_id: str) -> None:
    if response.error_code:
        raise kafka_error(response.error_code, f"the end of a transaction of {transactional_id}")
