"""Runs a connector until it is stopped: retries after temporary errors, and stores its status."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Callable, Iterator

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.producer import Producer, ProducerSettings
from headrace.client.requests import is_passing
from headrace.client.transaction_requests import FENCED
from headrace.connect.api import ConnectorError, Sink, Source, TryAgain
from headrace.connect.definition import ConnectorDefinition
from headrace.connect.run import Run, RunCounts, no_steps
from headrace.connect.sink_run import SinkRun
from headrace.connect.source_run import SourceRun
from headrace.connect.store import STATE_TOPIC, ensure_state_topic, state_record, status_key
from headrace.model.errors import KafkaError

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STATUS_EVERY_S = 5.0
ATTEMPTS_ONCE = 7
"""How often a run with `once` may restart without any progress in between."""

PASSING = (TryAgain, OSError, ClientError, KafkaError)


class Runner:
    def __init__(
        self,
        cluster: Cluster,
        definition: ConnectorDefinition,
        *,
        once: bool = False,
        at: Callable[[str], None] = no_steps,
        sources_beside: bool = False,
    ) -> None:
        self._definition = definition
        self.run_state = Run(
            *(cluster, definition.name, once),
            at=at,
            new_topics=definition.new_topics,
            sources_beside=sources_beside,
        )
        self._state = "starting"
        self._problem: str | None = None
        self._started_ms = self.run_state.wall_ms()

    @property
    def counts(self) -> RunCounts:
        return self.run_state.counts

    def stop(self) -> None:
        """Finish the current batch, then end."""
        self.run_state.stopping.set()

    async def run(self) -> None:
        """Run until stopped. Raises what only a user can fix: `ConnectorError`, or an error of the cluster."""
        await ensure_state_topic(self.run_state.cluster)
        reporting = asyncio.ensure_future(self._report())
        try:
            await self._run_until_done()
            self._state = "stopped" if self.run_state.stopping.is_set() else "finished"
        except (*PASSING, ConnectorError) as error:
            self._state, self._problem = "failed", str(error)
            if not isinstance(error, ClientError):
                await self._store_status()
            raise
        finally:
            reporting.cancel()
        await self._store_status()

    async def _run_until_done(self) -> None:
        pauses = _pauses()
        failures = 0
        while True:
            before = self.counts.transactions
            try:
                self._state = "running"
                return await self._begin()
            except PASSING as error:
                failures = failures + 1 if self.counts.transactions == before else 1
                pauses = _pauses() if failures == 1 else pauses
                self._judge(error, failures)
                self._problem = str(error)
            self._state = "retrying"
            self.counts.restarts += 1
            pause_s = next(pauses)
            log.warning("Connector %s restarts in %g s: %s", self._definition.name, pause_s, self._problem)
            await self.run_state.pause(pause_s)
            if self.run_state.stopping.is_set():
                return None

    async def _begin(self) -> None:
        connector = self._definition.connector
        if isinstance(connector, Sink):
            assert self._definition.sink_input is not None
            try:
                await SinkRun(self.run_state, connector, self._definition.sink_input).run()
            except BaseExceptionGroup as group:
                raise _first(group) from None
        else:
            assert isinstance(connector, Source)
            await SourceRun(self.run_state, connector).run()

    def _judge(self, error: BaseException, failures: int) -> None:
        """Raises the error if it is not temporary."""
        if isinstance(error, KafkaError) and error.code in FENCED:
            raise ConnectorError(
                f"another run of the connector {self._definition.name} has taken over, or a transaction took "
                "longer than its timeout"
            ) from error
        if isinstance(error, KafkaError | ClientError) and not is_passing(error, self._may_return):
            raise error
        if self.run_state.once and failures >= ATTEMPTS_ONCE:
            raise error

    def _may_return(self, _: Address) -> bool:
        """Whether a broker may come back: one that was never reached is probably a mistake."""
        return self.counts.transactions > 0

    # --- status

    async def _report(self) -> None:
        while True:
            await self._store_status()
            await self.run_state.cluster.env.clock.sleep(STATUS_EVERY_S)

    async def _store_status(self) -> None:
        run = self.run_state
        counts = run.counts
        status = {
            "connector": self._definition.type,
            "kind": "source" if self._definition.sink_input is None else "sink",
            "state": self._state,
            "problem": self._problem,
            "host": platform.node(),
            "pid": os.getpid(),
            "started_ms": self._started_ms,
            "updated_ms": run.wall_ms(),
            "records": counts.records,
            "transactions": counts.transactions,
            "restarts": counts.restarts,
            "lag": counts.lag,
            "gauges": counts.gauges,
        }
        try:
            producer = Producer(run.cluster, STATE_TOPIC, ProducerSettings(idempotent=False))
            await producer.start()
            await producer.send([state_record(status_key(run.name), status, run.wall_ms())])
        except (KafkaError, ClientError) as error:
            log.info("The status of connector %s could not be stored: %s", run.name, error)


def _pauses() -> Iterator[float]:
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
