"""Settings in which the brokers of a cluster differ by nature; in all others they should agree."""

from __future__ import annotations

import hashlib

from headrace.config.broker_config import BrokerConfig
from headrace.config.setting import ConfigType
from headrace.config.settings import BROKER_SETTINGS

DIFFER_BY_NATURE = frozenset(
    {
        "broker.id",
        "node.id",
        "broker.rack",
        "cordoned.log.dirs",
        "listeners",
        "advertised.listeners",
        "headrace.admin.port",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "process.roles",
    }
)
DIGEST_LETTERS = 12


def settings_digest(config: BrokerConfig) -> str:
    """The same for brokers whose settings agree, given or by default. Passwords are left out."""
    digest = hashlib.sha256()
    for name in sorted(BROKER_SETTINGS.keys() - DIFFER_BY_NATURE):
        if BROKER_SETTINGS[name].type is not ConfigType.PASSWORD:
            digest.update(f"{name}={config.value(name)!r}\n".encode())
    return digest.hexdigest()[:DIGEST_LETTERS]
