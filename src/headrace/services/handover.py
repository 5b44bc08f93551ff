"""A broker that stops hands over first: others lead its partitions before it closes a connection (R-OPS-8).

It asks the controller, which may be this broker itself, and keeps serving until its own image says that it leads
nothing. The controller takes over some hundred partitions at a time, and as long as they become fewer it is asked
again. What nobody else is in sync for the broker keeps, after it has waited a moment for followers to catch up.
Nobody can take over while the coordination store is down: a broker that cannot read it does not wait for that.
Before it asks, it sends producers to the next leaders (`departing`).

Then it stays for a moment and sends its clients to the new leaders. A client that is connected to nobody else yet
would take a closed connection for the end of the cluster: librdkafka starts over with its bootstrap servers then,
and in 2.16 a synchronous commit that is under way never returns.
"""

from __future__ import annotations

import asyncio
import logging

from headrace.coordination.contract import StoreError
from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.layout import CHANGES
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.controller_link import ControllerLink
from headrace.replication.replica_set import ReplicaSet
from headrace.services.departing import Departing
from headrace.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

LIMIT_SECONDS = 5.0
"""After that without any progress the broker stops as it is: others notice, and elect."""
LONGEST_SECONDS = 20.0
"""The same however much progress there was."""
ATTEMPT_SECONDS = 2.0
RETRY_SECONDS = 0.1
NAMING_SECONDS = 0.03
"""For producers to be told who leads next: three answers to one that sends every ten milliseconds."""
FAREWELL_SECONDS = 0.25
"""For clients to hear of the new leaders and connect to them."""
STORE_ATTEMPTS = 2
"""Without an answer of the store, one after the other; with ZooKeeper each waits a second for a server."""

logger = logging.getLogger(__name__)


class Handover:
    def __init__(
        self, env: Env, link: ControllerLink, metadata: ClusterMetadata, replicas: ReplicaSet, departing: Departing
    ) -> None:
        self._env = env
        self._link = link
        self._metadata = metadata
        self._replicas = replicas
        self._departing = departing

    async def run(self) -> None:
        """Return when other brokers lead, or none can, or the time is up. Never raises, so that the stop
        continues.
        """
        led = self._led()
        try:
            await self._until_others_lead()
        except TimeoutError:
            logger.warning("Stopping without handing over partitions: the coordination store does not respond")
        finally:
            self._departing.stay()
        if self._led() < led:
            await self._env.clock.sleep(FAREWELL_SECONDS)

    async def _until_others_lead(self) -> None:
        now = self._env.clock.monotonic
        end = now() + LONGEST_SECONDS
        deadline = now() + LIMIT_SECONDS
        silent = 0
        while self._has_others() and now() < deadline:
            led = self._led()
            try:
                async with asyncio.timeout(LIMIT_SECONDS):
                    await self._metadata.catch_up(CHANGES)
                    silent = 0
                    if await self._departing.announce():
                        await self._env.clock.sleep(NAMING_SECONDS)
                    if await self._may_stop():
                        return
            except StoreError as error:
                silent += 1
                if silent == STORE_ATTEMPTS:
                    logger.warning("Stopping without handing over partitions: %s", error)
                    return
            except KafkaError as error:
                logger.warning("Cannot ask the controller to move leadership: %s", error)
            if self._led() < led:
                deadline = min(now() + LIMIT_SECONDS, end)
            else:
                await self._env.clock.sleep(RETRY_SECONDS)
        if (left := self._led()) and self._has_others():
            logger.warning(
                "Stopping while still leading partitions (%d): none of their other replicas is in sync", left
            )

    def _led(self) -> int:
        return sum(partition.is_leader for partition in self._replicas.all())

    def _has_others(self) -> bool:
        """Whether another broker could lead any partition of this one."""
        image, own = self._metadata.image, self._replicas.broker_id
        if own not in image.brokers:
            return False
        states = [partition.image for partition in self._replicas.all()]
        return any(
            replica != own and replica in image.brokers
            for state in states
            if state is not None
            for replica in state.replicas
        )

    async def _may_stop(self) -> bool:
        """Whether others lead all partitions that this broker led, as far as it knows."""
        broker = self._metadata.image.brokers.get(self._replicas.broker_id)
        if broker is None:
            return True
        request = BrokerHeartbeatRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            current_metadata_offset=self._metadata.sequence,
            want_shut_down=True,
        )
        response = await self._link.ask(request, BrokerHeartbeatResponse, ATTEMPT_SECONDS)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        await self._metadata.catch_up(CHANGES)
        await self._replicas.settled()
        return response.should_shut_down
