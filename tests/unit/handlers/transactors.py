"""A transactional producer of tests, which asks the handlers as its connection would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from headrace.handlers.produce import produce
from headrace.handlers.registry import APIS
from headrace.model.errors import ErrorCode
from headrace.records.batch import TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.services.reply import NOT_QUICK, Pending
from headrace.transactions.transaction import ProducerIdentity
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.schema import Request

WAIT_SECONDS = 30
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}
NONE = ErrorCode.NONE


async def answered(reply: Any) -> Any:
    """What a hot handler gives back, now or later."""
    if not isinstance(reply, Pending):
        return reply
    done = asyncio.Event()
    reply.when_done(done.set)
    if not reply.done:
        await asyncio.wait_for(done.wait(), WAIT_SECONDS)
    return reply.result()


class Client:
    """A transactional producer, one request at a time."""

    def __init__(self, bench: Any, transactional_id: str = "id", quick: bool = True) -> None:
        self.bench = bench
        self.quick = quick
        """Whether the quick handlers are asked first, as they are on a connection."""
        self.id = transactional_id
        self.producer = ProducerIdentity(-1, -1)
        self._sequence = 0

    async def init(self, version: int = 5, **more: Any) -> Any:
        request = InitProducerIdRequest(transactional_id=self.id, **{"transaction_timeout_ms": 60_000, **more})
        response = await self.bench.call(request, version)
        if not response.error_code:
            self.producer = ProducerIdentity(response.producer_id, response.producer_epoch)
            self._sequence = 0
        return response

    async def ask(self, request: Request, version: int) -> Any:
        body = self.ask_quickly(request, version) if self.quick else NOT_QUICK
        if body is NOT_QUICK:
            return await self.bench.call(request, version)
        response = APIS[request.api_key].response
        assert response is not None
        return response.decode(bytes(await answered(body)), version)

    def ask_quickly(self, request: Request, version: int) -> Any:
        """What the quick handler gives back at once."""
        handle = APIS[request.api_key].quick
        assert handle is not None
        return handle(self._channel(), version, memoryview(request.encode(version)), 0)

    def _channel(self) -> Any:
        return SimpleNamespace(broker=self.bench.broker, listener="PLAINTEXT", principal="", client_host="")

    async def init_until_ready(self, **more: Any) -> Any:
        return await until(lambda: self.init(**more), lambda response: response.error_code != 51)

    async def add(self, *partitions: int, version: int = 3, topic: str = "t", **more: Any) -> list[ErrorCode]:
        named = AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        who = {"producer_id": self.producer.producer_id, "producer_epoch": self.producer.epoch, **more}
        if version < 4:
            fields = {f"v3_and_below_{name}": value for name, value in who.items()}
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id, v3_and_below_topics=[named], **fields
            )
            response = await self.ask(request, version)
            (result,) = response.results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(transactional_id=self.id, topics=[named], **who)
            response = await self.bench.call(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            ((result,),) = [one.topic_results for one in response.results_by_transaction]
        return [ErrorCode(one.partition_error_code) for one in result.results_by_partition]

    async def end(self, commit: bool = True, version: int = 4, **more: Any) -> Any:
        who = {"producer_id": self.producer.producer_id, "producer_epoch": self.producer.epoch, **more}
        response = await self.ask(EndTxnRequest(transactional_id=self.id, committed=commit, **who), version)
        if version >= 5 and not response.error_code:
            self.producer = ProducerIdentity(response.producer_id, response.producer_epoch)
            self._sequence = 0
        return response

    async def produce(
        self, partition: int = 0, version: int = 11, transactional_id: str | None = "", **stamp: int
    ) -> ErrorCode:
        """`transactional_id`: the client's own if it is empty."""
        producer = ProducerStamp(
            stamp.get("producer_id", self.producer.producer_id),
            stamp.get("epoch", self.producer.epoch),
            stamp.get("sequence", self._sequence),
        )
        now_ms = self.bench.broker.env.clock.wall_ms()
        batch = build_batch([NewRecord(b"v", timestamp=now_ms)], attributes=TRANSACTIONAL, producer=producer)
        topic = TopicProduceData(
            name="t", partition_data=[PartitionProduceData(index=partition, records=bytes(batch))]
        )
        named = self.id if transactional_id == "" else transactional_id
        request = ProduceRequest(transactional_id=named, acks=-1, timeout_ms=30_000, topic_data=[topic])
        frame = memoryview(bytearray(request.encode(version)))
        reply = await answered(produce(self._channel(), version, frame, 0))
        assert isinstance(reply, bytes)
        ((result,),) = [one.partition_responses for one in ProduceResponse.decode(reply, version).responses]
        if not result.error_code:
            self._sequence += 1
        return ErrorCode(result.error_code)

    def send(self, sequences: dict[int, int], version: int) -> Any:
        """A record to each partition, and the reply as it is; an answer need not be there."""
        now_ms = self.bench.broker.env.clock.wall_ms()
        data = []
        for partition, sequence in sequences.items():
            stamp = ProducerStamp(self.producer.producer_id, self.producer.epoch, sequence)
            batch = build_batch([NewRecord(b"v", timestamp=now_ms)], attributes=TRANSACTIONAL, producer=stamp)
            data.append(PartitionProduceData(index=partition, records=bytes(batch)))
        topic = TopicProduceData(name="t", partition_data=data)
        request = ProduceRequest(transactional_id=self.id, acks=-1, timeout_ms=30_000, topic_data=[topic])
        return produce(self._channel(), version, memoryview(bytearray(request.encode(version))), 0)

    async def state(self) -> Any:
        response = await self.bench.call(DescribeTransactionsRequest(transactional_ids=[self.id]), 0)
        return response.transaction_states[0]

    async def until_state(self, title: str) -> Any:
        return await until(self.state, lambda state: state.transaction_state == title)


async def until(ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    async def loop() -> Any:
        while not good(answer := await ask()):
            await asyncio.sleep(0.01)
        return answer

    return await asyncio.wait_for(loop(), WAIT_SECONDS)
