"""What a handler is given: the broker it serves, and who asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headrace.handlers.broker import Broker


@dataclass(frozen=True, slots=True)
class Context:
    """One cold request's surroundings."""

    broker: Broker
    version: int
    client_id: str | None
    principal: str
    client_host: str
    listener: str
    """The name of the listener it came in on: Metadata answers with that listener's addresses."""


class Channel(Protocol):
    """A connection as the hot handlers see it."""

    broker: Broker
    principal: str


ANONYMOUS = "User:ANONYMOUS"

Authorize = Callable[[str, str], bool]
"""(principal, resource) -> allowed. Every registration names one; until ACLs exist they allow all (D14)."""


def _allow(principal: str, resource: str) -> bool:
    return True


# Each names the right that Kafka's ACLs ask for; the security layer will give them meaning.
anyone: Authorize = _allow
cluster_describe: Authorize = _allow
cluster_alter: Authorize = _allow
cluster_create: Authorize = _allow
cluster_action: Authorize = _allow
topic_describe: Authorize = _allow
topic_read: Authorize = _allow
topic_write: Authorize = _allow
topic_create: Authorize = _allow
topic_delete: Authorize = _allow
topic_alter: Authorize = _allow
configs_describe: Authorize = _allow
configs_alter: Authorize = _allow
group_read: Authorize = _allow
group_describe: Authorize = _allow
group_delete: Authorize = _allow
transactional_id_describe: Authorize = _allow
transactional_id_write: Authorize = _allow
