"""The level of the format of a cluster's metadata: raised by newer versions, refused by older ones (R-OPS-8).

`/cluster/format` holds one number. Each version has the highest that it reads and writes (`METADATA_LEVEL`).

- A broker does not start, nor register, in a cluster whose level is above its own.
- While versions are mixed, all write as the cluster's level says.
- The controller raises the level once every broker that the cluster knows is there and can read the higher one.
  A broker that is only stopped counts: it blocks the raise until it comes back newer, or is unregistered. So an
  upgrade one by one can be undone until the last broker has been upgraded.

Level 1 is the first. Whoever changes what is written so that an older version would misread it raises the level,
and writes the old form below it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

from headrace.coordination.contract import Store, StoreError
from headrace.env import Env
from headrace.metadata.changes import Change, LevelRaised
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller
from headrace.metadata.image import BrokerImage, MetadataImage
from headrace.metadata.layout import DIRECTORIES, FORMAT
from headrace.model.errors import KafkaError

RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


def decide_level(level: int, known: Collection[int], brokers: Mapping[int, BrokerImage]) -> int:
    """The level that the cluster should have: never a lower one."""
    if not brokers or not set(known) <= brokers.keys():
        return level
    return max(level, min(broker.format_level for broker in brokers.values()))


def _raised(change: Change, _: MetadataImage) -> tuple[None, list[Change]]:
    return None, [change]


class LevelRaiser:
    def __init__(self, env: Env, store: Store, metadata: ClusterMetadata, controller: Controller) -> None:
        self._env = env
        self._store = store
        self._metadata = metadata
        self._controller = controller
        self._work: asyncio.Task[None] | None = None
        self._due = False

    def start(self) -> Callable[[], None]:
        """Look now and whenever brokers or the controller change; returns how to stop it."""
        self._look()
        return self._metadata.subscribe(self._follow)

    def _follow(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.brokers is not new.brokers or old.controller_epoch != new.controller_epoch:
            self._look()

    def _look(self) -> None:
        self._due = True
        if self._work is None or self._work.done():
            self._work = self._env.background.start("Raising the level of the metadata", self._raise())

    async def _raise(self) -> None:
        while self._due and self._controller.active:
            self._due = False
            try:
                (node,), known = await self._store.get_many([FORMAT]), await self._store.children(DIRECTORIES)
                assert node is not None, "the store is not laid out"
                wanted = decide_level(int(node.value), [int(name) for name in known], self._metadata.image.brokers)
                if wanted <= int(node.value):
                    return
                await self._controller.change(partial(_raised, LevelRaised(wanted, node.version)))
                logger.warning(
                    "The format of the cluster's metadata is now at level %d: versions of Headrace that cannot "
                    "read it can no longer start here",
                    wanted,
                )
            except (StoreError, KafkaError) as error:
                logger.info("The level of the metadata could not be raised yet: %s", error)
                self._due = True
                await self._env.clock.sleep(RETRY_SECONDS)
