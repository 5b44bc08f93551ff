"""How a broker shows ZooKeeper who it is, and what it lets others do to its nodes: values, without kazoo."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    digest: str | None = field(default=None, repr=False)
    """user:password of ZooKeeper's digest scheme."""
    own_nodes_only: bool = False
    """Whether only this login may read or change what the cluster stores there."""
    tls: bool = False
    ca: str | None = None
    """A file in PEM, as the others."""
    certificate: str | None = None
    """With its private key."""
    certificate_password: str | None = field(default=None, repr=False)
    check_host_name: bool = True


NO_ACCESS_RULES = ZooKeeperAccess()
