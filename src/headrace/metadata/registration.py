"""What each broker writes for itself, controller or not: its presence, and its blocks of producer ids."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headrace.coordination.contract import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    Put,
    SessionLost,
    Store,
    TreeNode,
    Unknown,
)
from headrace.env.env import Clock
from headrace.metadata.image import BrokerImage
from headrace.metadata.layout import (
    BROKER_EPOCH,
    CONTROLLER,
    FORMAT,
    PRODUCER_ID_BLOCK,
    broker_path,
    decode_json,
    decode_partitions,
    directories_path,
    encode_broker,
    encode_json,
    encode_partitions,
    offline_path,
    suspect_path,
)
from headrace.metadata.levels import LevelRefused, check_level
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId

PRODUCER_ID_BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1
MAX_ATTEMPTS = 20
"""The limit of attempts to write a node that other brokers write too; after each failure one of them succeeded."""
MAX_NAMED_PARTITIONS = 1000
"""If a broker lacks the logs of more partitions than this, all of its partitions are suspected."""
RETRY_SECONDS = 0.1
"""The pause before asking the store again, if it could not answer or a node still existed."""


async def register(
    store: Store,
    broker: BrokerImage,
    clock: Clock,
    former_sessions: Collection[str] = (),
    wait_seconds: float = 0.0,
) -> BrokerImage:
    """Create the broker's ephemeral node; returns the broker with its new epoch.

    A node of one of the former sessions, which are over, is replaced. A node of another session is waited for, and
    then it is DUPLICATE_BROKER_REGISTRATION. After an `Unknown` result it reads the node again;
    COORDINATOR_NOT_AVAILABLE if that does not help.
    """
    path = broker_path(broker.id)
    gives_up = clock.boottime() + wait_seconds
    failures, reason = 0, ""
    while failures < MAX_ATTEMPTS:
        try:
            epoch, present, level = await store.get_many([BROKER_EPOCH, path, FORMAT])
            assert epoch is not None, "the store is not laid out"
            assert level is not None, "the store is not laid out"
            _check_level(broker, level)
            owner = decode_json(present)["session"] if present is not None else None
            if present is not None and owner == store.session.id:
                return replace(broker, epoch=decode_json(present)["epoch"])  # An attempt whose answer was lost.
            if present is not None and owner not in former_sessions:
                await _wait_for_another(clock, broker.id, gives_up)
                continue
            return await _announce(store, broker, epoch, present, level)
        except (BadVersion, NodeExists, NoNode):
            failures += 1
        except Unknown as error:
            failures, reason = failures + 1, str(error)
            await clock.sleep(RETRY_SECONDS)
    raise _busy(reason)


async def _wait_for_another(clock: Clock, broker_id: int, gives_up: float) -> None:
    if clock.boottime() >= gives_up:
        raise _duplicate(broker_id)
    await clock.sleep(RETRY_SECONDS)


def _check_level(broker: BrokerImage, level: TreeNode) -> None:
    try:
        check_level(int(level.value), broker.format_level)
    except LevelRefused as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error


async def _announce(
    store: Store, broker: BrokerImage, epoch: TreeNode, former: TreeNode | None, level: TreeNode
) -> BrokerImage:
    path = broker_path(broker.id)
    registered = replace(broker, epoch=int(epoch.value) + 1)
    ops: list[Op] = [Check(FORMAT, level.version)]
    if former is not None:
        ops.append(Delete(path, former.version))
    ops.append(Put(BROKER_EPOCH, str(registered.epoch).encode(), epoch.version))
    ops.append(Create(path, encode_broker(registered, store.session.id), ephemeral=True))
    ops += await _confess(store, broker)
    await store.multi(ops)
    return registered


async def _confess(store: Store, broker: BrokerImage) -> list[Op]:
    """Operations that record a possible loss: the broker knows of it, or one of its directories is gone.

    "Suspect" stays in the store until the controller has acted on it, however often the broker starts meanwhile.
    """
    record, suspect = await store.get_many([directories_path(broker.id), suspect_path(broker.id)])
    known = set(decode_json(record)["ids"]) if record is not None else set()
    value = encode_json(ids=sorted(broker.directories))
    ops: list[Op] = []
    if record is None:
        ops.append(Create(directories_path(broker.id), value))
    elif known != set(broker.directories):
        ops.append(Put(directories_path(broker.id), value, record.version))
    if not known <= set(broker.directories):
        ops += _suspicion(broker.id, suspect, frozenset())
    elif broker.suspect:
        ops += _suspicion(broker.id, suspect, broker.lacking)
    return ops


def _suspicion(broker_id: int, present: TreeNode | None, lacking: Collection[tuple[TopicId, int]]) -> list[Op]:
    """Operations that mark records of these partitions, or of all if none is named, as possibly lost, in addition
    to what is marked already."""
    path = suspect_path(broker_id)
    if len(lacking) > MAX_NAMED_PARTITIONS:
        lacking = ()
    value = encode_partitions(lacking) if lacking else b""
    if present is None:
        return [Create(path, value)]
    if not present.value:
        return []
    if lacking:
        value = encode_partitions({*lacking, *decode_partitions(present)})
    return [Put(path, value, present.version)]


async def report_offline(store: Store, broker_id: int, partitions: Collection[tuple[TopicId, int]]) -> None:
    """Report which partitions of a live broker are offline; none if all are available."""
    path = offline_path(broker_id)
    present = await store.get(path)
    ops: list[Op] = [Delete(path, present.version)] if present is not None else []
    if partitions:
        ops.append(Create(path, encode_partitions(partitions), ephemeral=True))
    if ops:
        await store.multi(ops)


async def remove_remains(store: Store, former_sessions: Collection[str]) -> None:
    """Give up the controller role if a session that has ended still holds it."""
    node = await store.get(CONTROLLER)
    if node is not None and decode_json(node)["session"] in former_sessions:
        try:
            await store.delete(CONTROLLER, node.version)
        except (NoNode, BadVersion):
            pass  # It was deleted, and another broker may have the role now.


async def evict(store: Store, broker: BrokerImage) -> bool:
    """Remove this registration of a broker that seems dead, and its controller role, before its session ends.

    A mistake costs a leader change and nothing else: what it wrote is fenced by epochs, and it registers again.
    Returns whether this call did it; a later registration of the same broker is not touched.
    """
    path = broker_path(broker.id)
    node, controller, epoch = await store.get_many([path, CONTROLLER, BROKER_EPOCH])
    if node is None or epoch is None or decode_json(node)["epoch"] != broker.epoch:
        return False
    # The epoch's version changes with every registration: that of the node itself would begin at 0 again.
    ops: list[Op] = [Check(BROKER_EPOCH, epoch.version), Delete(path, node.version)]
    if controller is not None and decode_json(controller)["session"] == decode_json(node)["session"]:
        ops.append(Delete(CONTROLLER, controller.version))
    try:
        await store.multi(ops)
    except (NoNode, BadVersion):
        return False
    return True


async def allocate_producer_id_block(store: Store, broker_id: int) -> range:
    """The next producer ids, never given to anybody else; a block whose write has an unknown result is never used.

    COORDINATOR_NOT_AVAILABLE, after which clients retry, if the store does not accept it.
    """
    for _ in range(MAX_ATTEMPTS):
        try:
            return await _next_block(store, broker_id)
        except (BadVersion, Unknown):
            continue
        except SessionLost as error:
            raise _busy() from error
    raise _busy()


async def _next_block(store: Store, broker_id: int) -> range:
    node = await store.get(PRODUCER_ID_BLOCK)
    assert node is not None, "the store is not laid out"
    first = int(decode_json(node)["block_end"]) + 1 if node.value else 0
    if first > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been given out.")
    last = first + PRODUCER_ID_BLOCK_SIZE - 1
    value = encode_json(broker=broker_id, block_start=str(first), block_end=str(last))
    await store.put(PRODUCER_ID_BLOCK, value, node.version)
    return range(first, last + 1)


def _duplicate(broker_id: int) -> KafkaError:
    detail = f"A broker with id {broker_id} is already running in this cluster."
    return KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, detail)


def _busy(reason: str = "") -> KafkaError:
    detail = f"The coordination store did not accept the write{': ' if reason else ''}{reason}."
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
