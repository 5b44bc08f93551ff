"""`BrokerCluster`: several brokers on this machine for tests that need replicas, failover or a restart of one.

    with BrokerCluster() as cluster:                  # three brokers, replication factor 3 by default
        cluster.create_topic("orders", partitions=3)
        cluster.kill_broker(2)                        # kill -9; it is started again by itself

They are the workers of `headrace start --workers`. Every start gives each a free port: ask `bootstrap_servers`
again after `stop` and `start`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.testing.broker import ADDRESS_FILES, PID_FILES, Broker
from headrace.testing.process import POLL_INTERVAL_S, START_TIMEOUT_S, ServerFailed

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster


class BrokerCluster(Broker):
    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        data_dir: str | Path | None = None,
    ) -> None:
        super().__init__(settings, data_dir=data_dir)
        self.brokers = brokers

    def command(self) -> list[str]:
        self.port = 0
        return [*super().command(), "--workers", str(self.brokers)]

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Creates a topic, and waits until every broker knows it with its leaders."""
        super().create_topic(name, partitions, configs)

        async def has_leaders(cluster: Cluster) -> bool:
            topic = (await cluster.metadata([name])).topics.get(name)
            return topic is not None and all(one.leader >= 0 for one in topic.partitions)

        deadline = time.monotonic() + START_TIMEOUT_S
        for address in self.bootstrap_servers.split(","):
            while not self._ask(has_leaders, address):
                if time.monotonic() > deadline:
                    raise ServerFailed(f"the broker at {address} does not know {name} yet\n{self.log_tail()}")
                time.sleep(POLL_INTERVAL_S)
        return name

    def broker_pid(self, broker_id: int) -> int:
        file = self.data_dir / f"broker-{broker_id}" / "headrace.pid"
        if not file.parent.is_dir():
            there = sorted(int(folder.name.removeprefix("broker-")) for folder in self.data_dir.glob("broker-*"))
            raise ValueError(f"there is no broker {broker_id}; the brokers are {', '.join(map(str, there))}")
        return int(file.read_text())

    def kill_broker(self, broker_id: int) -> None:
        """kill -9 of one of them, as a crash."""
        os.kill(self.broker_pid(broker_id), signal.SIGKILL)

    def _serves(self) -> bool:
        if len(list(self.data_dir.glob(PID_FILES))) < self.brokers:
            return False
        addresses = [path.read_text().strip().split(",")[0] for path in sorted(self.data_dir.glob(ADDRESS_FILES))]
        self._address = ",".join(addresses)
        return len(addresses) == self.brokers
