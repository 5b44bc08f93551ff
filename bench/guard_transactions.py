"""Producers that write and commit at the same time, each on a connection of its own, for the guard."""

from __future__ import annotations

import time

from bench.hand_driven import PATIENCE_S, Client, HandDrivenBroker, Turn
from bench.requests import random_values
from bench.transactors import VERSIONS, commit, encoded, find, take, write
from headrace.records.builder import NewRecord, ProducerStamp
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

RECORDS = [NewRecord(value) for value in random_values(1, 100)]


class Transactors:
    """One transaction of each at a time; transactions version 2."""

    def __init__(self, broker: HandDrivenBroker, topic: str, count: int) -> None:
        self._broker = broker
        self._topic = topic
        self._clients = {f"guard-{number}": broker.connect() for number in range(count)}
        self._producers = {name: _taken(broker, client, name) for name, client in self._clients.items()}

    def step(self, turn: Turn) -> None:
        writes = {
            client: encoded(write(name, ProducerStamp(*self._producers[name], 0), self._topic, [0], RECORDS))
            for name, client in self._clients.items()
        }
        ends = {client: encoded(commit(name, *self._producers[name])) for name, client in self._clients.items()}
        for frames in (writes, ends):
            self._broker.exchange(frames, dict.fromkeys(frames, 1), turn)
        self._producers = {name: (one, epoch + 1) for name, (one, epoch) in self._producers.items()}


def _taken(broker: HandDrivenBroker, client: Client, name: str) -> tuple[int, int]:
    """The producer id and epoch, as soon as there is a coordinator."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, "no coordinator"
        answer = broker.answer(client, encoded(find(name)))
        if FindCoordinatorResponse.decode(answer, VERSIONS[FindCoordinatorRequest], 5).coordinators[0].error_code:
            continue
        answer = broker.answer(client, encoded(take(name)))
        taken = InitProducerIdResponse.decode(answer, VERSIONS[InitProducerIdRequest], 5)
        if not taken.error_code:
            return taken.producer_id, taken.producer_epoch
