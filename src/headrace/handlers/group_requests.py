"""What the handlers of group APIs share: who asks, and what everybody may do with a group."""

from __future__ import annotations

from headrace.groups.messages import Client
from headrace.handlers.context import Context

# Kafka's numbers of ACL operations: read, delete, describe, and the settings of the group. Without ACLs all may.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
NOT_REQUESTED = -(1 << 31)


def client_of(ctx: Context) -> Client:
    """Kafka shows the host as Java does: a name, which we do not look up, then a slash, then the address."""
    return Client(ctx.client_id or "", f"/{ctx.client_host}")
