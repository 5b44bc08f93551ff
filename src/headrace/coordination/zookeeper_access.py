"""What kazoo needs so that ZooKeeper knows us and no one else reaches our nodes, existing ones included."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kazoo.security import ACL, CREATOR_ALL_ACL

from headrace.coordination.contract import NoNode
from headrace.coordination.zookeeper_client import ZooKeeperClient
from headrace.coordination.zookeeper_login import ZooKeeperAccess

_logger = logging.getLogger(__name__)
ZOOKEEPERS_OWN = "zookeeper"
"""A node of every server, which is not ours."""
WORLD = "world"


def kazoo_options(access: ZooKeeperAccess) -> Mapping[str, object]:
    options: dict[str, object] = {}
    if access.digest is not None:
        options["auth_data"] = [("digest", access.digest)]
    if access.own_nodes_only:
        options["default_acl"] = CREATOR_ALL_ACL
    if access.tls:
        options |= {"use_ssl": True, "verify_certs": True, "check_hostname": access.check_host_name}
        if access.ca is not None:
            options["ca"] = access.ca
        if access.certificate is not None:
            options |= {"certfile": access.certificate, "keyfile": access.certificate}
            options["keyfile_password"] = access.certificate_password
    return options


async def secure_tree(client: ZooKeeperClient, chroot: str) -> int:
    """Take from others what is open to all below the chroot: it was made before; how many nodes that were."""
    names = await _children(client, chroot or "/")
    waiting = [f"{chroot}/{name}" for name in names if chroot or name != ZOOKEEPERS_OWN]
    secured = 0
    if chroot and await _secured(client, chroot):
        secured += 1
    while waiting:
        path = waiting.pop()
        waiting += [f"{path}/{name}" for name in await _children(client, path)]
        secured += await _secured(client, path)
    if secured:
        _logger.info("Restricted %d ZooKeeper nodes that were open to everybody to this cluster", secured)
    return secured


async def _children(client: ZooKeeperClient, path: str) -> list[str]:
    try:
        found: list[str] = await client.call(lambda kazoo: kazoo.get_children_async(path), path)
    except NoNode:
        return []
    return found


async def _secured(client: ZooKeeperClient, path: str) -> bool:
    try:
        acls, _ = await client.call(lambda kazoo: kazoo.get_acls_async(path), path)
        if not any(_is_open(acl) for acl in acls):
            return False
        await client.call(lambda kazoo: kazoo.set_acls_async(path, CREATOR_ALL_ACL), path)
    except NoNode:
        return False
    return True


def _is_open(acl: ACL) -> bool:
    return acl.id.scheme == WORLD
