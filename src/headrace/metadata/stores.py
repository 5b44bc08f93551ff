"""Which coordination store a broker's settings name, and how a session with it is opened."""

from __future__ import annotations

import os.path

from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import Store
from headrace.coordination.sqlite import open_sqlite_store
from headrace.env import Env

STORE_FILE = "cluster.db"


def store_text(config: BrokerConfig) -> str:
    """For people."""
    return f"the SQLite file {store_path(config)}"


def session_timeout(config: BrokerConfig) -> float:
    """Seconds."""
    return config.integer("broker.session.timeout.ms") / 1000


def renewal_interval(config: BrokerConfig) -> float:
    """Seconds."""
    return config.integer("broker.heartbeat.interval.ms") / 1000


async def open_store(env: Env, config: BrokerConfig) -> Store:
    """A new session. `StoreError` or `OSError` if there is no store to be had."""
    return await open_sqlite_store(env, store_path(config), session_timeout(config))


def store_path(config: BrokerConfig) -> str:
    return os.path.join(config.log_dirs[0], STORE_FILE)
