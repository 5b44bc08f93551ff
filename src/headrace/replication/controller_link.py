"""How anything on this broker asks the controller, wherever that is (R-REP-3).

A request goes to the controller that the image names: by a call if it is this broker, else over the connection to
that one. One that meets a broker which is no longer the controller, or nobody, is tried again until its time is
up. The controller's decisions are fenced, so that a request which is repeated does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from headrace.client.errors import ClientError
from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.image import NO_CONTROLLER
from headrace.metadata.layout import CHANGES
from headrace.metadata.topic_decisions import TopicCreation, TopicOutcome
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.peers import Peers
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
RETRY_SECONDS = 0.05
REQUEST_SECONDS = 10.0
CREATION_SECONDS = 10.0
NEWEST = 1 << 15
"""As a version: the highest that both sides have."""

BROKER_CLIENT_ID = "headrace-broker-"
"""How brokers call themselves to each other; their ids follow."""

LocalCall = Callable[[Request, int], Awaitable[Response]]


class ControllerLink:
    def __init__(self, env: Env, metadata: ClusterMetadata, peers: Peers, broker_id: int) -> None:
        self._env = env
        self._metadata = metadata
        self._peers = peers
        self._broker_id = broker_id
        self.call_here: LocalCall | None = None
        """Answers a request as this broker's own controller; set once the handlers are there."""

    @property
    def is_here(self) -> bool:
        return self._metadata.image.controller_id == self._broker_id

    async def ask(
        self,
        request: Request,
        answer: type[R],
        timeout_s: float = 30.0,
        version: int = NEWEST,
        on_doubt: Callable[[], None] | None = None,
    ) -> R:
        """The controller's answer. NOT_CONTROLLER, or REQUEST_TIMED_OUT, if there was none in time.

        `on_doubt` is called after each attempt whose outcome is unknown.
        """
        deadline = self._env.clock.monotonic() + timeout_s
        while True:
            left = deadline - self._env.clock.monotonic()
            try:
                response = await self._once(request, answer, version, min(max(left, 0.1), REQUEST_SECONDS))
                if not _met_no_controller(response):
                    return response
                problem = KafkaError(ErrorCode.NOT_CONTROLLER, "The controller is changing.")
            except ClientError as error:
                problem = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The controller cannot be reached: {error}")
            except KafkaError as error:
                if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE):
                    raise
                problem = error
            if on_doubt is not None:
                on_doubt()
            if self._env.clock.monotonic() + RETRY_SECONDS >= deadline:
                try:
                    raise problem
                finally:
                    del problem  # with its traceback it would hold itself, and the request
            await self._env.clock.sleep(RETRY_SECONDS)

    async def create_topics(self, topics: Sequence[TopicCreation]) -> list[TopicOutcome]:
        """For the broker's own needs; each topic as it is then, also one that was there before, or its error."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
                )
                for topic in topics
            ],
            timeout_ms=int(CREATION_SECONDS * 1000),
        )
        response = await self.ask(request, CreateTopicsResponse, CREATION_SECONDS)
        await self._metadata.catch_up(CHANGES)
        results = {result.name: result for result in response.topics}
        return [self._outcome(topic.name, results.get(topic.name)) for topic in topics]

    def _outcome(self, name: str, result: CreatableTopicResult | None) -> TopicOutcome:
        known = self._metadata.image.topics.get(name)
        if known is not None:
            return known
        if result is None or not result.error_code:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Topic {name} was created and then deleted again.")
        return KafkaError(ErrorCode(result.error_code), result.error_message)

    async def _once(self, request: Request, answer: type[R], version: int, timeout_s: float) -> R:
        controller = self._metadata.image.controller_id
        if controller == NO_CONTROLLER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "There is no controller at the moment.")
        if controller == self._broker_id:
            assert self.call_here is not None
            return cast(R, await self.call_here(request, version))
        # In a task of its own: time limits need one, and handlers may run without.
        return await asyncio.ensure_future(self._remotely(controller, request, answer, version, timeout_s))

    async def _remotely(
        self, controller: int, request: Request, answer: type[R], version: int, timeout_s: float
    ) -> R:
        peer = await self._peers.shared(controller)
        return await peer.request(request, answer, highest=version, timeout_s=timeout_s)


def _met_no_controller(response: Any) -> bool:
    """Whether the broker that answered is not the controller (any more): some answers say so for each item."""
    items = [
        item
        for name in ("topics", "responses", "results", "filter_results")
        for item in getattr(response, name, ())
    ]
    return any(getattr(part, "error_code", 0) == ErrorCode.NOT_CONTROLLER for part in (response, *items))
