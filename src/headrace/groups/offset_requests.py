"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, and the expiry of offsets.

Deciders read group and offsets and return events or values. Who may commit depends on the kind of the group:
a member must name its generation (or epoch) and itself; with a negative generation anyone may, while nobody is in
the group, which is how tools and consumers that assign partitions to themselves keep their place.
"""

from __future__ import annotations

from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.decision import Draft
from headrace.groups.either import Group
from headrace.groups.events import NO_TIMESTAMP, OffsetCommitted, OffsetDeleted
from headrace.groups.messages import (
    CommitOffsets,
    CommitReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    FetchedOffset,
    FetchOffsets,
    FetchReply,
    OffsetToCommit,
)
from headrace.groups.offsets import OffsetStore
from headrace.groups.states import GroupState
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

_MEMBER_EPOCHS_SINCE = 9
"""OffsetCommit before this cannot tell a member epoch from a generation."""


def check_commit(group: Group | None, request: CommitOffsets) -> None:
    if group is None:
        if request.generation >= 0:
            newer = request.version >= _MEMBER_EPOCHS_SINCE and not request.transactional
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION)
    elif isinstance(group, ClassicGroup):
        _check_classic_commit(group, request)
    else:
        _check_consumer_commit(group, request)


def _check_classic_commit(group: ClassicGroup, request: CommitOffsets) -> None:
    if request.generation < 0 and group.is_empty:
        return
    if request.generation >= 0 or request.member_id or request.instance_id is not None:
        group.check_member(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    elif not request.transactional:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not request.transactional and group.state is GroupState.COMPLETING_REBALANCE:
        # The member does not know yet what it owns in this generation.
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _check_consumer_commit(group: ConsumerGroup, request: CommitOffsets) -> None:
    if request.generation < 0 and group.is_empty:
        return
    member = group.member(request.member_id)
    if not request.transactional and not member.uses_classic and request.version < _MEMBER_EPOCHS_SINCE:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        )
    if request.generation != member.epoch:
        stale = not member.uses_classic and not request.transactional
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH if stale else ErrorCode.ILLEGAL_GENERATION)


def quiet_session_ms(
    group: Group | None, generation: int, member_id: str, instance_id: str | None, version: int
) -> int | None:
    """The session timeout of a member whose commit needs no other check; None where `check_commit` has to decide.

    A classic member's commit restarts its session; 0 for others.
    """
    if type(group) is ClassicGroup:
        member = group.members.get(member_id)
        if (
            member is None
            or generation != group.generation
            or (instance_id is not None and instance_id != member.instance_id)
            or group.state is GroupState.COMPLETING_REBALANCE
        ):
            return None
        return member.session_timeout_ms
    if type(group) is ConsumerGroup and version >= _MEMBER_EPOCHS_SINCE:
        known = group.members.get(member_id)
        if known is not None and generation == known.epoch and not known.uses_classic:
            return 0
    return None


def decide_commit(group: Group | None, request: CommitOffsets, draft: Draft) -> CommitReply:
    check_commit(group, request)
    expire_ms = NO_TIMESTAMP if request.retention_ms < 0 else draft.now_ms + request.retention_ms
    errors = []
    for offset in request.offsets:
        # Kafka counts characters here, whatever the setting's name says.
        if offset.metadata is not None and len(offset.metadata) > draft.settings.offset_metadata_max_bytes:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        errors.append(ErrorCode.NONE)
        draft.events.append(_committed(request, offset, draft.now_ms, expire_ms))
    return CommitReply(tuple(errors))


def _committed(request: CommitOffsets, offset: OffsetToCommit, now_ms: int, expire_ms: int) -> OffsetCommitted:
    return OffsetCommitted(
        request.group_id,
        offset.topic,
        offset.partition,
        offset.offset,
        offset.leader_epoch,
        offset.metadata or "",
        now_ms,
        expire_ms,
        offset.topic_id,
        request.producer_id,
    )


def fetch(group: Group | None, offsets: OffsetStore, request: FetchOffsets) -> FetchReply:
    error = _fetch_error(group, request)
    if error is not ErrorCode.NONE:
        return FetchReply(error, ())
    partitions = request.partitions
    if partitions is None:
        partitions = tuple(sorted(offsets.of_group(request.group_id)))
    return FetchReply(error, tuple(_fetch_one(offsets, request, partition) for partition in partitions))


def _fetch_error(group: Group | None, request: FetchOffsets) -> ErrorCode:
    anonymous = request.member_id is None and request.member_epoch < 0
    if not isinstance(group, ConsumerGroup) or anonymous:
        return ErrorCode.NONE
    member = group.members.get(request.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.epoch == request.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.uses_classic else ErrorCode.STALE_MEMBER_EPOCH


def _fetch_one(offsets: OffsetStore, request: FetchOffsets, partition: TopicPartition) -> FetchedOffset:
    if request.require_stable and offsets.is_pending(request.group_id, partition):
        return FetchedOffset(*partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    commit = offsets.get(request.group_id, partition)
    if commit is None:
        return FetchedOffset(*partition)
    return FetchedOffset(*partition, commit.offset, commit.leader_epoch, commit.metadata)


def is_subscribed(group: Group, topic: str) -> bool:
    return group.is_subscribed(topic) if isinstance(group, ClassicGroup) else topic in group.subscribed_topics


def decide_delete(group: Group, offsets: OffsetStore, request: DeleteOffsets, draft: Draft) -> DeleteOffsetsReply:
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
        # What such members read cannot be known, so nothing may be taken from them.
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    errors = []
    for partition in request.partitions:
        if is_subscribed(group, partition.topic):
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        errors.append(ErrorCode.NONE)
        committed = offsets.get(request.group_id, partition) is not None
        if committed or offsets.is_pending(request.group_id, partition):
            draft.events.append(OffsetDeleted(request.group_id, *partition))
    return DeleteOffsetsReply(ErrorCode.NONE, tuple(errors))


def delete_all(group_id: str, offsets: OffsetStore, draft: Draft) -> None:
    for partition in sorted(offsets.of_group(group_id).keys() | offsets.pending_partitions(group_id)):
        draft.events.append(OffsetDeleted(group_id, *partition))


def expire(group: Group, offsets: OffsetStore, draft: Draft) -> bool:
    """Delete offsets that are past the retention and not in use; returns whether nothing is left of them."""
    stored = offsets.of_group(group.id)
    if not stored:
        return not offsets.has_pending(group.id)
    if isinstance(group, ClassicGroup) and not _may_expire(group):
        return False
    since_ms = _empty_since_ms(group)
    kept = offsets.has_pending(group.id)
    for partition, offset in sorted(stored.items()):
        base_ms = offset.commit.commit_timestamp_ms if since_ms is None else since_ms
        expired = offset.expired(base_ms, draft.now_ms, draft.settings.offsets_retention_ms)
        if not expired or is_subscribed(group, partition.topic) or offsets.is_pending(group.id, partition):
            kept = True
        else:
            draft.events.append(OffsetDeleted(group.id, *partition))
    return not kept


def _may_expire(group: ClassicGroup) -> bool:
    """Whether offsets may expire: all of an empty group, those of unread topics in a stable consumer group."""
    if group.is_empty:
        return True
    knows = group.subscribed_topics() is not None
    return group.state is GroupState.STABLE and knows


def _empty_since_ms(group: Group) -> int | None:
    """The start of the retention, if it does not begin at each commit: when the members of a group left."""
    if isinstance(group, ClassicGroup) and group.is_empty and group.protocol_type and group.state_since_ms >= 0:
        return group.state_since_ms
    return None
