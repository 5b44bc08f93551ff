"""The gate with quotas: what a request used counts, and who is over its rate is told to wait and not read from.

As Kafka does it (KIP-124, KIP-219): a Produce is done and answered at once, with the time to wait in its answer,
and until then nothing more of its connection is handled. A Fetch of who is over its rate is answered with nothing
and the time to wait; one that is not is answered whole, within what the rate allows in a second. Requests that
change topics are refused with THROTTLING_QUOTA_EXCEEDED (KIP-599, `mutations`).

Brokers are not limited. Without quotas this guard is not there (`guards`), and without one of a kind the requests
of that kind pass it as if it were not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

from headrace.handlers.broker import Broker
from headrace.handlers.context import Context, SaslConversation
from headrace.handlers.fetch import fetch_nothing
from headrace.handlers.registry import Api, ColdHandler, HotHandler
from headrace.metadata.image import MetadataImage
from headrace.metrics.exposition import Family
from headrace.security.quota import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from headrace.server.authorization.guard import AclGuard
from headrace.server.broker_proof import BrokerProof
from headrace.server.dispatch import Dispatcher, LaterAnswer
from headrace.server.gate import ColdBody
from headrace.server.mutations import MUTATIONS, limited_mutation
from headrace.server.quota_book import BurstSeconds, ClientAllowances, QuotaBook
from headrace.server.throttling import (
    SettledLater,
    milliseconds,
    size_of,
    throttle_at,
    throttle_place,
    with_throttle_at,
)
from headrace.services.reply import NOT_QUICK, Body, Pending, QuickReply, Reply
from headrace.wire.api_keys import ApiKey
from headrace.wire.fetch import limited
from headrace.wire.produce import with_throttle_time

if TYPE_CHECKING:
    from headrace.server.exchange import Exchange

_CLIENT_ID = 10
"""Where the client id begins in a frame; its length is before it."""


class QuotaGuard:
    def __init__(self, broker: Broker, inner: AclGuard | None, dispatcher: Dispatcher, proof: BrokerProof) -> None:
        """`inner` knows what the principal may."""
        self._broker = broker
        self._inner = inner
        self._dispatcher = dispatcher
        self._now = broker.env.clock.monotonic
        config = broker.config
        windows = max(config.integer("quota.window.num") - 1, 1)
        controller_windows = config.integer("controller.quota.window.num")
        self.book = QuotaBook(
            BurstSeconds(
                float(windows * config.integer("quota.window.size.seconds")),
                float(controller_windows * config.integer("controller.quota.window.size.seconds")),
            )
        )
        self._proof = proof
        self._held: WeakSet[Exchange] = WeakSet()

    def follow(self, image: MetadataImage) -> None:
        """Quotas changed: clients held back by the old ones are released and measured again."""
        self.book.take(image.quotas)
        held, self._held = list(self._held), WeakSet()
        for exchange in held:
            exchange.let_go()

    def families(self) -> Iterator[Family]:
        return self.book.families()

    # -- what the dispatcher calls

    def login(self, exchange: Exchange) -> SaslConversation | None:
        return None

    def enter(self, exchange: Exchange, api: Api, request_bytes: int) -> None:
        """What a request uses is known when it is done."""

    def cold(self, api: Api, handle: ColdHandler) -> ColdHandler:
        permitted = handle if self._inner is None else self._inner.cold(api, handle)
        mutation = MUTATIONS.get(api.key)
        if mutation is None or not self.book.mutations:
            return permitted

        def allowance_of(context: Context) -> ClientAllowances | None:
            return self._client(context.principal, (context.client_id or "").encode(), context.client_host)

        return limited_mutation(mutation, permitted, allowance_of, self._now)

    def leave(self, exchange: Exchange, api: Api, context: Context, body: ColdBody, seconds: float) -> ColdBody:
        client_id = (context.client_id or "").encode()
        client = self._client(exchange.principal, client_id, exchange.client_host)
        if client is None or (client.request is None and client.mutations is None):
            return body
        place = throttle_place(api, context.version)
        if isinstance(body, Pending):

            def finish(late: Body) -> Body:
                later = body.spent.busy_seconds if isinstance(body, LaterAnswer) else 0.0
                return self._left(exchange, client, client_id, late, place, seconds + later)

            return SettledLater(body, finish)
        until_now = max(self._now() - self._dispatcher.now, seconds)
        return cast(bytes, self._left(exchange, client, client_id, body, place, until_now))

    def _left(
        self,
        exchange: Exchange,
        client: ClientAllowances,
        client_id: bytes,
        body: Body,
        place: int | None,
        seconds: float,
    ) -> Body:
        told = throttle_at(body, place) / 1000 if place is not None and type(body) is bytes else 0.0
        if told > 0:  # by the quota of changes
            self._hold(exchange, CONTROLLER_MUTATION_RATE, client_id, told)
        wait = self._request_wait(client, seconds)
        if wait > told:
            self._hold_for_time(exchange, client, client_id, wait)
            if place is not None:
                return with_throttle_at(body, place, milliseconds(wait))
        return body

    def quick(self, api: Api, handle: HotHandler) -> HotHandler | None:
        if self._inner is not None or not self.book.request:
            return None if self._inner is not None else handle

        def counted(exchange: Exchange, version: int, frame: memoryview, position: int) -> QuickReply:
            reply: QuickReply = handle(exchange, version, frame, position)
            client, client_id = self._client_of(exchange, frame)
            if reply is NOT_QUICK or client is None:
                return reply
            place = throttle_place(api, version)
            wait = self._request_wait(client, self._now() - self._dispatcher.now)
            if wait > 0:
                self._hold_for_time(exchange, client, client_id, wait)
                if type(reply) is bytes and place is not None:
                    return cast(bytes, with_throttle_at(reply, place, milliseconds(wait)))
            return reply

        return counted

    def hot(self, api: Api, handle: HotHandler) -> HotHandler:
        permitted = handle if self._inner is None else self._inner.hot(api, handle)
        book = self.book
        if api.key == ApiKey.FETCH:
            if not (book.fetch or book.request):
                return permitted
            nothing = fetch_nothing if self._inner is None else self._inner.hot(api, fetch_nothing)
            return self._fetch(permitted, nothing)
        assert api.key == ApiKey.PRODUCE, f"{api.name} has no quota"
        return self._produce(permitted) if book.produce or book.request else permitted

    # -- the hot requests

    def _produce(self, handle: HotHandler) -> HotHandler:
        def produce(exchange: Exchange, version: int, frame: memoryview, position: int) -> Reply:
            reply: Reply = handle(exchange, version, frame, position)
            client, client_id = self._client_of(exchange, frame)
            if client is None:
                return reply
            now = self._now()
            size, seconds = len(frame), now - self._dispatcher.now

            def finish(body: Body) -> Body:
                wait = self._produced(exchange, client, client_id, size, seconds)
                if wait > 0:
                    assert type(body) is bytes
                    return with_throttle_time(version, body, milliseconds(wait))
                return body

            if isinstance(reply, Pending):
                return SettledLater(reply, finish)
            if reply is None:  # acks=0
                self._produced(exchange, client, client_id, size, seconds)
                return None
            return finish(reply)

        return produce

    def _produced(
        self, exchange: Exchange, client: ClientAllowances, client_id: bytes, size: int, seconds: float
    ) -> float:
        allowance = client.produce
        wait = 0.0 if allowance is None else allowance.use(size, self._now())
        request_wait = self._request_wait(client, seconds)
        if request_wait > wait:
            self._hold_for_time(exchange, client, client_id, request_wait)
            return request_wait
        if wait > 0:
            self._hold(exchange, PRODUCER_BYTE_RATE, client_id, wait)
        return wait

    def _fetch(self, handle: HotHandler, nothing: Callable[..., Body]) -> HotHandler:
        def fetch(exchange: Exchange, version: int, frame: memoryview, position: int) -> Reply:
            client, client_id = self._client_of(exchange, frame)
            if client is None:
                reply: Reply = handle(exchange, version, frame, position)
                return reply
            allowance = client.fetch
            if allowance is not None:
                wait = allowance.ahead(self._now())
                if wait > 0:
                    self._hold(exchange, CONSUMER_BYTE_RATE, client_id, wait)
                    return with_throttle_at(nothing(exchange, version, frame, position), 0, milliseconds(wait))
                most = max(int(allowance.rate * self.book.bursts.rates), 1)
                frame = limited(frame, position, version, most)
            reply = handle(exchange, version, frame, position)
            seconds = self._now() - self._dispatcher.now

            def finish(body: Body) -> Body:
                if allowance is not None:
                    allowance.use(size_of(body), self._now())
                wait = self._request_wait(client, seconds)
                if wait > 0:
                    self._hold_for_time(exchange, client, client_id, wait)
                    return with_throttle_at(body, 0, milliseconds(wait))
                return body

            assert reply is not None
            return SettledLater(reply, finish) if isinstance(reply, Pending) else finish(reply)

        return fetch

    # -- who it is, and how long it waits

    def _client_of(self, exchange: Exchange, frame: memoryview) -> tuple[ClientAllowances | None, bytes]:
        size = int.from_bytes(frame[_CLIENT_ID - 2 : _CLIENT_ID], "big", signed=True)
        client_id = bytes(frame[_CLIENT_ID : _CLIENT_ID + size]) if size > 0 else b""
        return self._client(exchange.principal, client_id, exchange.client_host), client_id

    def _client(self, principal: str, client_id: bytes, host: str) -> ClientAllowances | None:
        if self._proof.is_broker(principal, client_id, host):
            return None
        return self.book.client(principal, client_id, self._now())

    def _request_wait(self, client: ClientAllowances, seconds: float) -> float:
        """At most a window: heartbeats must come through, and what is left over is not forgotten."""
        if client.request is None:
            return 0.0
        return min(client.request.use(max(seconds, 0.0), self._now()), self.book.bursts.rates)

    def _hold_for_time(
        self, exchange: Exchange, client: ClientAllowances, client_id: bytes, seconds: float
    ) -> None:
        """That is work for the client too: beside quick requests it is as much as they are."""
        began = self._now()
        self._hold(exchange, REQUEST_PERCENTAGE, client_id, seconds)
        self._request_wait(client, self._now() - began)

    def _hold(self, exchange: Exchange, kind: str, client_id: bytes, seconds: float) -> None:
        self.book.throttled(kind, exchange.principal, client_id, seconds)
        exchange.hold_back(seconds)
        self._held.add(exchange)
