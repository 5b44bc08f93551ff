"""What a user who is not authorized asks an administrator for: the operations that the command needs."""

from __future__ import annotations

from collections.abc import Mapping

import click

from headrace.model.errors import ErrorCode

REFUSED: Mapping[ErrorCode, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not authorized to access this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not authorized to access this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not authorized to do this on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Not authorized to use this transactional id",
}
"""In the broker's words, for responses that have room for a code only."""

NEEDED: Mapping[str, str] = {
    "topic create": "create on the topic or on the cluster",
    "topic describe": "describe and describe-configs on the topic",
    "topic produce": "write on the topic",
    "topic consume": "read on the topic",
    "topic copy": "read on the topic that is copied, and write and describe-configs on the other",
    "topic offsets": "describe on the topic",
    "topic alter": "describe and alter-configs on the topic",
    "topic add-partitions": "alter on the topic",
    "topic trim": "describe and delete on the topic",
    "topic delete": "describe and delete on the topic",
    "group describe": "describe on the group and on its topics",
    "group watch": "describe on the group and on its topics",
    "group seek": "read on the group and on its topics",
    "group delete": "delete on the group",
    "txn describe": "describe on the transactional id and on its topics",
    "txn producers": "read on the topic",
    "cluster health": "describe on the cluster",
    "cluster logdirs": "describe on the cluster",
    "cluster check": "describe and describe-configs on the cluster",
    "partition status": "describe and describe-configs on the cluster",
    "partition move": "alter on the cluster",
    "partition balance": "alter on the cluster",
    "partition cancel": "alter on the cluster",
    "partition elect": "alter on the cluster",
    "quota list": "describe-configs on the cluster",
    "quota describe": "describe-configs on the cluster",
    "quota set": "alter-configs on the cluster",
    "quota delete": "alter-configs on the cluster",
    "acl list": "describe on the cluster",
    "acl add": "alter on the cluster",
    "acl remove": "alter on the cluster",
    "user list": "describe on the cluster",
    "user add": "alter on the cluster",
    "user remove": "alter on the cluster",
}
"""By command; others change settings or end transactions, and what they need depends on their options."""


def rights_advice(code: ErrorCode) -> str | None:
    """None for an error that is not about rights."""
    if code not in REFUSED:
        return None
    context = click.get_current_context(silent=True)
    command = "" if context is None else context.command_path.removeprefix("headrace ")
    if command in NEEDED:
        return f"The command needs {NEEDED[command]}: ask an administrator to allow that (`headrace acl add`)."
    resource = code.name.removesuffix("_AUTHORIZATION_FAILED").replace("_", " ").lower()
    return f"Ask an administrator for rights on the {resource} (`headrace acl add`)."
