"""Transactional producers in one event loop: each writes its records and commits, again and again.

They speak transactions version 2 as current Java clients do: a Produce that joins its partition to the transaction
(v12), then EndTxn (v5), whose answer carries the next epoch. CONCURRENT_TRANSACTIONS, the answer while the
transaction before is still being completed, is asked again and counted; any other error raises ValueError.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.group_members import Link
from headrace.records.batch import TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.testing.raw_client import frame, request_header
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.schema import Request

VERSIONS: dict[type[Request], int] = {
    FindCoordinatorRequest: 4,
    InitProducerIdRequest: 5,
    ProduceRequest: 12,
    EndTxnRequest: 5,
}
"""All of them flexible: the header ends with tagged fields."""
TRANSACTION_TIMEOUT_MS = 60_000
PRODUCE_TIMEOUT_MS = 30_000
READY_TIMEOUT_S = 60.0
COORDINATOR_OF_TRANSACTIONS = 1
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, LOADING, CONCURRENT_TRANSACTIONS = 15, 16, 14, 51
NOT_YET = (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, LOADING, CONCURRENT_TRANSACTIONS)
PAUSE_S = 0.001


@dataclass(slots=True)
class Transactions:
    """How long each took, and how often the one before was not complete yet."""

    seconds: list[float] = field(default_factory=list)
    repeated: int = 0


class Transactor:
    def __init__(
        self, link: Link, name: str, topic: str, partitions: Sequence[int], values: Sequence[bytes]
    ) -> None:
        self._link = link
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._records = [NewRecord(value) for value in values]
        self._producer_id, self._epoch = -1, -1

    async def begin(self) -> None:
        """Take the transactional id, as soon as there is a coordinator."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            # The internal topic is made when its coordinator is asked for.
            answer = await self._ask(find(self._name))
            found = FindCoordinatorResponse.decode(answer, VERSIONS[FindCoordinatorRequest], 5)
            code = found.coordinators[0].error_code
            if code == 0:
                answer = await self._ask(take(self._name))
                taken = InitProducerIdResponse.decode(answer, VERSIONS[InitProducerIdRequest], 5)
                code = taken.error_code
                if code == 0:
                    self._producer_id, self._epoch = taken.producer_id, taken.producer_epoch
                    return
            if code not in NOT_YET or time.monotonic() > deadline:
                raise ValueError(f"no transactional id {self._name}: error {code}")
            await asyncio.sleep(0.05)

    async def repeat(self, end: float) -> Transactions:
        """One transaction after the other until `end` (perf_counter)."""
        found = Transactions()
        while (began := time.perf_counter()) < end:
            await self._write(found)
            await self._commit(found)
            found.seconds.append(time.perf_counter() - began)
        return found

    async def _write(self, found: Transactions) -> None:
        stamp = ProducerStamp(self._producer_id, self._epoch, 0)
        request = write(self._name, stamp, self._topic, self._partitions, self._records)
        while True:
            answer = ProduceResponse.decode(await self._ask(request), VERSIONS[ProduceRequest], 5)
            codes = {partition.error_code for partition in answer.responses[0].partition_responses}
            if codes == {0}:
                return
            if codes != {CONCURRENT_TRANSACTIONS}:
                raise ValueError(f"a transactional Produce failed: errors {sorted(codes)}")
            found.repeated += 1
            await asyncio.sleep(PAUSE_S)

    async def _commit(self, found: Transactions) -> None:
        request = commit(self._name, self._producer_id, self._epoch)
        while True:
            answer = EndTxnResponse.decode(await self._ask(request), VERSIONS[EndTxnRequest], 5)
            if answer.error_code == 0:
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                return
            if answer.error_code != CONCURRENT_TRANSACTIONS:
                raise ValueError(f"EndTxn failed: error {answer.error_code}")
            found.repeated += 1
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, request: Request) -> bytes:
        return await self._link.exchange(encoded(request))


def write(
    name: str, stamp: ProducerStamp, topic: str, partitions: Sequence[int], records: Sequence[NewRecord]
) -> ProduceRequest:
    """The records of a transaction, the same to each partition."""
    batch = bytes(build_batch(records, attributes=TRANSACTIONAL, producer=stamp))
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    return ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


def commit(name: str, producer_id: int, epoch: int) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)


def take(name: str) -> InitProducerIdRequest:
    """Asks for an epoch of a transactional id."""
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )


def find(name: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=COORDINATOR_OF_TRANSACTIONS, coordinator_keys=[name])


def encoded(request: Request) -> bytes:
    """The frame of a request. All have the same correlation id: a connection has one in flight."""
    version = VERSIONS[type(request)]
    return frame(request_header(request.api_key, version, 1, "bench") + b"\0" + request.encode(version))
