"""This broker's view of the cluster: an immutable image, replaced when the store says that something changed.

Watches keep it fresh: `/changes` (topics and settings: each entry names what to read again), `/brokers/ids`,
`/brokers/offline` and `/controller`. A broker that fell so far behind that entries were dropped reads everything
again. An image is only shown when no further entry appeared while it was read, so it never mixes two states of a
topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.coordination.contract import Create, NodeExists, SessionLost, Store, StoreError, TreeNode, Unknown
from headrace.env import Env
from headrace.metadata import levels
from headrace.metadata.image import MetadataImage
from headrace.metadata.layout import (
    ACLS,
    BROKER_IDS,
    CHANGES,
    CLUSTER_ID,
    CONTROLLER,
    FORMAT,
    OFFLINE,
    QUOTAS,
    SECRET_BYTES,
    SKELETON,
    TOPICS,
    USERS,
    change_path,
    decode_json,
    encode_json,
    new_cluster_id,
)
from headrace.metadata.levels import check_level
from headrace.metadata.loading import (
    load_acls,
    load_broker_config_names,
    load_broker_configs,
    load_brokers,
    load_controller,
    load_group_config_names,
    load_group_configs,
    load_partitions,
    load_quotas,
    load_topics,
    load_user_names,
    load_users,
    states_in,
)
from headrace.security.quota import entity_text

RETRY_SECONDS = 0.2
"""The pause before reading again when the store could not answer."""

ImageListener = Callable[[MetadataImage, MetadataImage], None]
_WATCHED = (CHANGES, BROKER_IDS, OFFLINE, CONTROLLER)


class ClusterMetadata:
    def __init__(self, env: Env, store: Store) -> None:
        self._env = env
        self._store = store
        self._image = MetadataImage(cluster_id="")
        self._loaded = False
        self._sequence = 0
        self._oldest_sequence = 0
        self._listeners: list[ImageListener] = []
        self._stale: set[str] = set()
        self._loading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def sequence(self) -> int:
        """The last entry of `/changes` that is in the image."""
        return self._sequence

    @property
    def oldest_sequence(self) -> int:
        """The oldest entry of `/changes` that still exists; 0 if there is none."""
        return self._oldest_sequence

    @classmethod
    async def opened(cls, env: Env, store: Store) -> ClusterMetadata:
        """An instance that has started; if that fails it follows nothing."""
        metadata = cls(env, store)
        try:
            await metadata.start()
        except StoreError:
            await metadata.close()
            raise
        return metadata

    async def start(self) -> None:
        """Lay out the store if it is new, and load everything."""
        cluster_id = await self._lay_out()
        self._image = MetadataImage(cluster_id)
        for path in _WATCHED:
            await self._store.watch(path, partial(self._on_change, path))
        await self.catch_up(*_WATCHED)

    async def close(self) -> None:
        """Stop following. The store is not ours to close."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def subscribe(self, listener: ImageListener) -> Callable[[], None]:
        """Call `listener(old, new)` on the loop after each replacement; returns how to stop it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait_for(self, predicate: Callable[[MetadataImage], bool]) -> MetadataImage:
        """The first image, now or later, that satisfies the predicate. The caller sets the time limit."""
        if predicate(self._image):
            return self._image
        found: asyncio.Future[MetadataImage] = asyncio.get_running_loop().create_future()

        def look(_: MetadataImage, new: MetadataImage) -> None:
            if not found.done() and predicate(new):
                found.set_result(new)

        unsubscribe = self.subscribe(look)
        try:
            return await found
        finally:
            unsubscribe()

    async def catch_up(self, *paths: str) -> None:
        """Read everything below these watched paths again; the image then has at least the state at the call."""
        self._stale.update(paths)
        async with self._loading:
            stale, self._stale = self._stale, set()
            read_before = self._loaded, self._sequence
            try:
                image = await self._load(stale)
            except BaseException:
                self._stale |= stale
                self._loaded, self._sequence = read_before  # what was read is not in any image
                raise
            self._show(image)

    def _show(self, image: MetadataImage) -> None:
        old = self._image
        if image is old:
            return
        self._image = image
        for listener in list(self._listeners):
            listener(old, image)

    def _on_change(self, path: str) -> None:
        self._stale.add(path)
        if not self._closed and (self._task is None or self._task.done()):
            self._task = self._env.background.start("Reading the cluster's metadata", self._follow())

    async def _follow(self) -> None:
        while self._stale:
            try:
                await self.catch_up()
            except SessionLost:
                return  # The owner of the store learns it from its session.
            except Unknown:
                await self._env.clock.sleep(RETRY_SECONDS)

    async def _load(self, stale: set[str]) -> MetadataImage:
        image = self._image
        if CHANGES in stale:
            image = await self._load_changes(image)
        if BROKER_IDS in stale or OFFLINE in stale:
            brokers = await load_brokers(self._store)
            if brokers != image.brokers:
                image = replace(image, brokers=brokers)
        if CONTROLLER in stale:
            controller_id, epoch = await load_controller(self._store)
            if (controller_id, epoch) != (image.controller_id, image.controller_epoch):
                image = replace(image, controller_id=controller_id, controller_epoch=epoch)
        return image

    async def _load_changes(self, image: MetadataImage) -> MetadataImage:
        """Load changes until a round finds nothing new: the controller, the only writer, is far slower."""
        complete, sequence = self._loaded, self._sequence
        while True:
            entries = [int(name) for name in await self._store.children(CHANGES)]
            self._oldest_sequence = entries[0] if entries else 0
            new = [entry for entry in entries if entry > sequence]
            if complete and not new:
                self._loaded, self._sequence = True, sequence
                return image
            nodes = await self._store.get_many([change_path(entry) for entry in new])
            known = complete and new[0] == sequence + 1 and None not in nodes
            if known:
                image = await self._reload(image, [node for node in nodes if node is not None])
            else:
                image = await self._reload_all(image)
            complete = True
            sequence = new[-1] if new else sequence

    async def _reload(self, image: MetadataImage, entries: list[TreeNode]) -> MetadataImage:
        fields = [decode_json(entry) for entry in entries]
        topics = list(dict.fromkeys(name for entry in fields for name in entry["topics"]))
        brokers = list(dict.fromkeys(name for entry in fields for name in entry["brokers"]))
        image = await self._reload_partitions(image, fields, set(topics))
        if topics:
            loaded = await load_topics(self._store, topics)
            image = image.with_topics(list(loaded.values()), [name for name in topics if name not in loaded])
        if brokers:
            configs = await load_broker_configs(self._store, brokers)
            others = {name: known for name, known in image.broker_configs.items() if name not in brokers}
            image = replace(image, broker_configs=others | configs)
        groups = list(dict.fromkeys(name for entry in fields for name in entry.get("groups", ())))
        if groups:
            kept = {name: configs for name, configs in image.group_configs.items() if name not in groups}
            image = replace(image, group_configs=kept | await load_group_configs(self._store, groups))
        acls = list(dict.fromkeys(acl_id for entry in fields for acl_id in entry.get("acls", ())))
        if acls:
            rest = {acl_id: acl for acl_id, acl in image.acls.items() if acl_id not in acls}
            image = replace(image, acls=rest | await load_acls(self._store, acls))
        users = list(dict.fromkeys(name for entry in fields for name in entry.get("users", ())))
        if users:
            unchanged = {name: known for name, known in image.users.items() if name not in users}
            image = replace(image, users=unchanged | await load_users(self._store, users))
        quotas = list(dict.fromkeys(text for entry in fields for text in entry.get("quotas", ())))
        if quotas:
            same = {entity: limits for entity, limits in image.quotas.items() if entity_text(entity) not in quotas}
            image = replace(image, quotas=same | await load_quotas(self._store, quotas))
        return image

    async def _reload_partitions(
        self, image: MetadataImage, entries: list[dict[str, Any]], whole: set[str]
    ) -> MetadataImage:
        """Reload the changed partitions of topics that are not reloaded as a whole."""
        told, unread = states_in(image, entries, whole)
        if unread:
            replicas = {name: [p.replicas for p in image.topics[name].partitions] for name in unread}
            for name, partitions in (await load_partitions(self._store, unread, replicas)).items():
                told.setdefault(name, {}).update(partitions)
        return image.with_partitions(told) if told else image

    async def _reload_all(self, image: MetadataImage) -> MetadataImage:
        topics = await load_topics(self._store, await self._store.children(TOPICS))
        by_id = {topic.id: topic for topic in topics.values()}
        configs = await load_broker_configs(self._store, await load_broker_config_names(self._store))
        groups = await load_group_configs(self._store, await load_group_config_names(self._store))
        acls = await load_acls(self._store, await self._store.children(ACLS))
        users = await load_users(self._store, await load_user_names(self._store))
        quotas = await load_quotas(self._store, await self._store.children(QUOTAS))
        secret = await self._store.get(USERS)
        return replace(
            image,
            topics=topics,
            topics_by_id=by_id,
            broker_configs=configs,
            group_configs=groups,
            acls=acls,
            users=users,
            quotas=quotas,
            secret=secret.value if secret is not None else b"",
        )

    async def _lay_out(self) -> str:
        """Create missing nodes in one write; returns the cluster id."""
        while True:
            cluster, *nodes = await self._store.get_many([CLUSTER_ID, *SKELETON])
            level = nodes[list(SKELETON).index(FORMAT)]
            if level is not None:
                check_level(int(level.value), levels.METADATA_LEVEL)
            if cluster is not None and None not in nodes:
                return str(decode_json(cluster)["id"])
            missing = [path for path, node in zip(SKELETON, nodes, strict=True) if node is None]
            secret = self._env.rng.bytes(SECRET_BYTES).hex().encode()
            ops = [Create(path, secret if path == USERS else SKELETON[path]) for path in missing]
            if cluster is None:
                ops.append(Create(CLUSTER_ID, encode_json(id=new_cluster_id(self._env.rng.bytes(16)))))
            try:
                await self._store.multi(ops)
            except NodeExists:
                continue  # Another broker was faster: use what it created.
            except Unknown:
                await self._env.clock.sleep(RETRY_SECONDS)  # The nodes may exist now: look again.
