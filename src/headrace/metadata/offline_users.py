"""A user's credential written to the store while no broker runs: how the first administrator comes to be."""

from __future__ import annotations

from headrace.coordination.contract import ANY_VERSION, Store
from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.layout import BROKER_IDS, decode_user, encode_user, user_path
from headrace.security.scram import ScramCredential


class ClusterRuns(Exception):
    """Brokers would not notice what is written behind their backs."""


async def store_user(env: Env, store: Store, user: str, mechanism: str, credential: ScramCredential) -> None:
    metadata = ClusterMetadata(env, store)
    await metadata.start()  # lays out the store if it is new
    await metadata.close()
    if await store.children(BROKER_IDS):
        raise ClusterRuns
    path = user_path(user)
    node = await store.get(path)
    if node is None:
        await store.create(path, encode_user({mechanism: credential}))
    else:
        await store.put(path, encode_user(decode_user(node) | {mechanism: credential}), ANY_VERSION)
