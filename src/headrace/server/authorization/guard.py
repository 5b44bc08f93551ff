"""The gate with access rules: every request is cut down to what its principal may (`table`, `hot`).

The rules are those of the broker's image. When they change, so does everything that was decided by the old
ones, also for connections that are open: a new `Authorizer`, and new views of the partitions for Produce and
Fetch.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from headrace.config.security_settings import super_users
from headrace.handlers.broker import Broker
from headrace.handlers.context import Context
from headrace.handlers.registry import Api, ColdHandler, HotHandler
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ProtocolError
from headrace.model.varint import read_uvarint
from headrace.replication.controller_link import BROKER_CLIENT_ID
from headrace.security.acl import Operation, Resource
from headrace.security.authorizer import Authorizer, Rights
from headrace.server.audit_lines import audit, pairs
from headrace.server.authorization.asking import NOT_THIS_TRANSACTION, Asking, Completion, Denied
from headrace.server.authorization.hot import (
    HotChannel,
    OwnSessions,
    PermittedReplicas,
    as_fetch_sessions,
    as_replica_set,
)
from headrace.server.authorization.table import refused_to_all, rule_of
from headrace.server.gate import ColdBody
from headrace.server.line_limit import LineLimit
from headrace.services.fetching.parked import ParkedFetch
from headrace.services.reply import Reply
from headrace.wire.api_keys import ApiKey
from headrace.wire.produce import FLEXIBLE
from headrace.wire.schema import Response

if TYPE_CHECKING:
    from headrace.server.exchange import Exchange

_LENGTH = struct.Struct(">h")
MAX_VIEWS = 10_000
"""Pairs of principal and host with a view of their own; then they are rebuilt."""


class PermittedBroker:
    """The broker as one principal from one host may use it."""

    def __init__(self, broker: Broker, rights: Rights, denied: Denied) -> None:
        def permitted(operation: Operation) -> PermittedReplicas:
            def may(name: str) -> bool:
                allowed = rights.may(operation, Resource.TOPIC, name)
                if not allowed:
                    denied(rights, operation, Resource.TOPIC, name)
                return allowed

            return PermittedReplicas(broker.replicas, lambda: broker.metadata.image, may)

        self.rights = rights
        readable = permitted(Operation.READ)
        readable.may_copy = rights.on_cluster(Operation.CLUSTER_ACTION)
        self.sessions = OwnSessions(broker.fetch_sessions, readable)
        self.reading = replace(
            broker, replicas=as_replica_set(readable), fetch_sessions=as_fetch_sessions(self.sessions)
        )
        self.writing = replace(broker, replicas=as_replica_set(permitted(Operation.WRITE)))
        nothing = PermittedReplicas(
            broker.replicas, lambda: broker.metadata.image, lambda name: False, NOT_THIS_TRANSACTION
        )
        self.refused_transaction = replace(broker, replicas=as_replica_set(nothing))


class AclGuard:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config
        self._super_users = super_users(config.text("super.users") or "")
        self._allow_without_acls = config.boolean("allow.everyone.if.no.acl.found")
        self._makes_topics = config.boolean("auto.create.topics.enable")
        self._lines = LineLimit(broker.env.clock, audit)
        self._views: dict[tuple[str, str], PermittedBroker] = {}
        self._open_views: WeakSet[OpenView] = WeakSet()
        self._authorizer = self._make_authorizer(broker.metadata.image)
        broker.metadata.subscribe(self._follow)

    # -- the rules

    def _make_authorizer(self, image: MetadataImage) -> Authorizer:
        return Authorizer(image.acls.values(), self._super_users, self._allow_without_acls)

    def _follow(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.acls is not new.acls:
            self._authorizer = self._make_authorizer(new)
            for opened in list(self._open_views):
                opened.let_go()
            for view in self._views.values():
                view.sessions.close_all()
            self._views = {}

    def _denied(self, rights: Rights, operation: Operation, resource: Resource, name: str) -> None:
        line = pairs(
            "denied",
            principal=rights.principal,
            host=rights.host,
            operation=operation.name.lower(),
            resource=resource.name.lower(),
            name=name,
        )
        self._lines.say_pairs(logging.INFO, "audit event=denied", line)

    def rights(self, principal: str, host: str) -> Rights:
        return self._authorizer.rights(principal, host)

    def _image(self) -> MetadataImage:
        return self._broker.metadata.image

    # -- what the dispatcher calls

    def login(self, exchange: Exchange) -> None:
        """Who it is, others have found out."""

    def enter(self, exchange: Exchange, api: Api, request_bytes: int) -> None:
        """Rights are asked for when the request is decoded."""

    def cold(self, api: Api, handle: ColdHandler) -> ColdHandler:
        rule = rule_of(api) or refused_to_all

        def permitted(context: Context, request: Any) -> Response | Awaitable[Response]:
            rights = self._authorizer.rights(context.principal, context.client_host)
            if rights.is_super or _is_forwarded(context, rights):
                return handle(context, request)
            asking = Asking(rights, self._image, context.version, self._denied, makes_topics=self._makes_topics)
            outcome = rule(asking, request)
            if isinstance(outcome, Response):
                return outcome
            work = handle(context, request)
            if outcome is None:
                return work
            if isinstance(work, Response):
                outcome(work)
                return work
            return _completed(work, outcome)

        return permitted

    def leave(self, exchange: Exchange, api: Api, context: Context, body: ColdBody, seconds: float) -> ColdBody:
        return body

    def quick(self, api: Api, handle: HotHandler) -> None:
        """Only the cold path looks at rights."""

    def hot(self, api: Api, handle: HotHandler) -> HotHandler:
        if api.key == ApiKey.FETCH:
            return self._fetch(handle)
        assert api.key == ApiKey.PRODUCE, f"{api.name} has no row in the authorisation table"
        return self._produce(handle)

    def _fetch(self, handle: HotHandler) -> HotHandler:
        def fetch(exchange: Exchange, version: int, frame: memoryview, position: int) -> Reply:
            view: Any = exchange.view or self._view(exchange)
            reply: Reply = handle(view.reader, version, frame, position)
            if type(reply) is ParkedFetch:
                view.keep(reply)
            return reply

        return fetch

    def _produce(self, handle: HotHandler) -> HotHandler:
        def produce(exchange: Exchange, version: int, frame: memoryview, position: int) -> Any:
            view: Any = exchange.view or self._view(exchange)
            if version < FLEXIBLE or position >= len(frame) or frame[position]:
                return handle(self._transactional(view, version, frame, position), version, frame, position)
            return handle(view.writer, version, frame, position)

        return produce

    def _view(self, exchange: Exchange) -> OpenView:
        key = exchange.principal, exchange.client_host
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            view = self._views[key] = PermittedBroker(self._broker, self._authorizer.rights(*key), self._denied)
        opened = exchange.view = OpenView(view, exchange)
        self._open_views.add(opened)
        return opened

    def _transactional(self, view: OpenView, version: int, frame: memoryview, position: int) -> HotChannel:
        name = _transactional_id(version, frame, position)
        rights = view.rights
        if name is None or rights.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, name):
            return view.writer
        self._denied(rights, Operation.WRITE, Resource.TRANSACTIONAL_ID, name)
        return view.refused


class OpenView:
    """A view on one connection, on whose exchange it stands for as long as the rules are the same."""

    __slots__ = ("__weakref__", "_exchange", "_parked", "reader", "refused", "rights", "writer")

    def __init__(self, view: PermittedBroker, exchange: Exchange) -> None:
        self._exchange = ref(exchange)
        self.rights = view.rights
        principal, host, listener = exchange.principal, exchange.client_host, exchange.listener
        self.reader = HotChannel(view.reading, principal, host, listener)
        self.writer = HotChannel(view.writing, principal, host, listener)
        self.refused = HotChannel(view.refused_transaction, principal, host, listener)
        self._parked: list[ParkedFetch] = []

    def keep(self, parked: ParkedFetch) -> None:
        """Remember a long poll: what it was allowed may not be allowed any more when there is data for it."""
        self._parked = [waiting for waiting in self._parked if not waiting.done]
        self._parked.append(parked)

    def let_go(self) -> None:
        """The rules have changed: what is allowed is looked up again, and long polls end with nothing."""
        exchange = self._exchange()
        if exchange is not None and exchange.view is self:
            exchange.view = None
        parked, self._parked = self._parked, []
        for waiting in parked:
            if not waiting.done:
                waiting.give_way()


def _is_forwarded(context: Context, rights: Rights) -> bool:
    """A broker sends on what it has checked itself: who may act for the cluster may act for anybody in it."""
    named = (context.client_id or "").startswith(BROKER_CLIENT_ID)
    return named and rights.on_cluster(Operation.CLUSTER_ACTION)


async def _completed(work: Awaitable[Response], complete: Completion) -> Response:
    response = await work
    complete(response)
    return response


def _transactional_id(version: int, frame: memoryview, position: int) -> str | None:
    try:
        if version < FLEXIBLE:
            (size,) = _LENGTH.unpack_from(frame, position)
            start = position + 2
        else:
            size, start = read_uvarint(frame, position)
            size -= 1
        if size < 0:
            return None
        if start + size > len(frame):
            raise ProtocolError("a transactional id is cut off")
        return str(frame[start : start + size], "utf-8", "replace")
    except struct.error:
        raise ProtocolError("a Produce is cut off") from None
