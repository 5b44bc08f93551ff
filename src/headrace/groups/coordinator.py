"""All groups of one partition of `__consumer_offsets`: the only entrance to this package.

`GroupCoordinator` is pure. It has no clock, does no I/O and never waits: time comes in as `now_ms`, and what must
happen comes out as a `Decision`. A request method reads the state and changes nothing; `apply` alone changes it.

How a shell drives it
---------------------
Loading: make an empty coordinator, `apply` every record of the partition in log order (a record of a transactional
batch as `OffsetCommitted` with its producer id, a control record as `TransactionEnded`), then take the timers of
`load_finished(now_ms)`. The order of applied records is all that counts; their offsets are not needed.

A request, or a timer that fires:

1. call the method; it returns a `Decision` (events, replies, timers);
2. append `decision.records`, all in one atomic batch, to the partition, and wait until they are replicated;
   with nothing to append, continue at once;
3. `apply` every event in order, the volatile ones too;
4. arm or cancel the timers;
5. send each reply to its token. A token that was given to `join_group` or `sync_group` may come back in a later
   decision (of another member's request, or of a timer); every token comes back exactly once.

If the append fails, nothing has happened: drop the decision, answer its own request with
`error_reply(request, append_error(code))`, and fire a timer again later. Those who wait keep waiting.

One at a time: while the records of a decision are on their way, nothing else may be decided about the same group,
since it would be decided on a state that is about to change. Decisions marked `shared` (commits) may overlap each
other but not another. A readers-writer lock per group does it. Different groups do not touch each other.

Timers: keep a map from `timer.key` to the latest `GroupTimer`. `deadline_ms` None removes it; `keep_existing`
leaves an armed one as it is. At its deadline remove it and pass it to `timer_fired`. Deadlines are on the clock of
`now_ms`, which should be the wall clock, because commit and state timestamps are stored from it.

Topics: pass a new `TopicsView` to `topics_changed` when the metadata image changes; groups see it at the next
heartbeat of a member. For deleted partitions call `partitions_deleted`. In the same way `settings_changed` tells
the settings of groups that have their own.

Every few minutes call `expire(group_id, now_ms)` for each of `group_ids()`.

When leadership of the partition is lost, send the replies of `resign()` and forget the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from headrace.groups import (
    classic_join,
    classic_requests,
    consumer_heartbeat,
    consumer_members,
    describe,
    offset_requests,
)
from headrace.groups.classic import ClassicGroup, ClassicMember, group_from_record
from headrace.groups.classic_rebalance import arm_session, prepare_rebalance, release_all
from headrace.groups.consumer import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerGroup
from headrace.groups.decision import Decision, Draft, GroupTimer, TimerKind
from headrace.groups.either import Group
from headrace.groups.errors import GroupRequest, error_reply
from headrace.groups.events import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ClassicGroupChanged,
    ConsumerEpochDeleted,
    ConsumerEpochStored,
    ConsumerMemberStored,
    ConsumerPartitionsStored,
    ConsumerRecord,
    CurrentAssignmentStored,
    Event,
    GroupDeleted,
    GroupStored,
    OffsetCommitted,
    OffsetDeleted,
    RegexStored,
    TargetEpochStored,
    TargetStored,
    TransactionEnded,
)
from headrace.groups.messages import (
    UNKNOWN_MEMBER,
    CommitOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeleteGroupReply,
    DeleteOffsets,
    FetchOffsets,
    FetchReply,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeaveReply,
    OffsetToCommit,
    SyncGroup,
    Token,
)
from headrace.groups.migration import may_upgrade, upgrade
from headrace.groups.offsets import OffsetStore
from headrace.groups.settings import GroupSettings
from headrace.groups.states import GroupState, MemberState
from headrace.groups.topics import TopicsView
from headrace.groups.workspace import Workspace
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

_new_tuple = tuple.__new__
"""Creates a named tuple without a call into Python: every commit uses it."""
_MAKES_CONSUMER_GROUP = (
    ConsumerEpochStored,
    ConsumerPartitionsStored,
    ConsumerMemberStored,
    TargetEpochStored,
    TargetStored,
    CurrentAssignmentStored,
    RegexStored,
)


class GroupCoordinator:
    def __init__(self, settings: GroupSettings, topics: TopicsView, new_id: Callable[[], str]) -> None:
        """`new_id` makes the unique part of member ids: a random UUID as text."""
        self._settings = settings
        self._settings_of: Mapping[str, GroupSettings] = {}
        """The settings of groups that have their own."""
        self._topics = topics
        self._new_id = new_id
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetStore()

    # --- reading -------------------------------------------------------------------------------------------------

    def group_ids(self) -> tuple[str, ...]:
        return tuple(self._groups)

    def group(self, group_id: str) -> Group | None:
        """For tests and metrics; not to be changed."""
        return self._groups.get(group_id)

    @property
    def offsets(self) -> OffsetStore:
        """For lag and metrics; not to be changed."""
        return self._offsets

    def fetch_offsets(self, request: FetchOffsets) -> FetchReply:
        return offset_requests.fetch(self._groups.get(request.group_id), self._offsets, request)

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> tuple[describe.ListedGroup, ...]:
        return describe.list_groups(self._groups.values(), states, types)

    def describe_group(self, group_id: str, version: int) -> describe.DescribedGroup:
        """Describe a classic group (DescribeGroups)."""
        return describe.describe_classic(group_id, self._groups.get(group_id), version)

    def describe_consumer_group(self, group_id: str) -> describe.DescribedConsumerGroup:
        """Describe a consumer group (ConsumerGroupDescribe)."""
        if not group_id:
            return describe.DescribedConsumerGroup(group_id, ErrorCode.INVALID_GROUP_ID)
        return describe.describe_consumer(group_id, self._groups.get(group_id), self._settings, self._topics)

    # --- heartbeats that say nothing new -------------------------------------------------------------------------

    def quiet_member(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> ClassicMember | None:
        """The member whose heartbeat is answered with no error and only restarts its session.

        None where more has to be decided, by `heartbeat`, which decides the same in this case.
        """
        group = self._groups.get(group_id)
        if type(group) is not ClassicGroup:
            return None
        member = group.members.get(member_id)
        if member is None or generation != group.generation or group.state is GroupState.PREPARING_REBALANCE:
            return None
        return member if instance_id is None or instance_id == member.instance_id else None

    def quiet_consumer(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        client: tuple[str, str],
        now_ms: Callable[[], int],
    ) -> GroupSettings | None:
        """The settings for a member whose heartbeat only restarts its session; else None, as above."""
        group = self._groups.get(group_id)
        if type(group) is not ConsumerGroup or not group.is_quiet(self._topics):
            return None
        settings = self._settings_of.get(group_id, self._settings)
        if group.epoch > group.assignment_epoch and group.may_assign(
            settings.consumer_assignment_interval_ms, now_ms()
        ):
            return None
        member = group.members.get(member_id)
        if (
            member is None
            or member_epoch <= 0
            or member_epoch != member.epoch
            or not member.reconciled_to(group.assignment_epoch)
            or member.classic is not None
            or client != (member.client_id, member.client_host)
        ):
            return None
        return settings

    def quiet_commit(
        self,
        member: tuple[str, int, str, str | None],
        version: int,
        offsets: Iterable[OffsetToCommit],
        now_ms: int,
    ) -> tuple[list[OffsetCommitted], int] | None:
        """The offsets that a member's usual commit stores, and the session timeout that it restarts (0: none).

        `member` is its group id, generation or epoch, member id and instance id. None where more has to be
        decided, by `commit_offsets`, which decides the same in this case.
        """
        group_id, generation, member_id, instance_id = member
        group = self._groups.get(group_id)
        timeout_ms = offset_requests.quiet_session_ms(group, generation, member_id, instance_id, version)
        if timeout_ms is None:
            return None
        longest = self._settings.offset_metadata_max_bytes
        events: list[OffsetCommitted] = []
        for topic, partition, offset, leader_epoch, metadata, topic_id in offsets:
            if metadata is not None and len(metadata) > longest:
                return None
            text = metadata or ""
            # fmt: off
            fields = (group_id, topic, partition, offset, leader_epoch, text, now_ms, NO_TIMESTAMP, topic_id,
                      NO_PRODUCER_ID)
            # fmt: on
            events.append(_new_tuple(OffsetCommitted, fields))
        return events, timeout_ms

    # --- the classic protocol ------------------------------------------------------------------------------------

    def join_group(self, request: JoinGroup, token: Token, now_ms: int) -> Decision:
        draft = self._draft(now_ms, request.group_id)
        return self._decide(draft, request, token, lambda: self._join(request, token, draft))

    def sync_group(self, request: SyncGroup, token: Token, now_ms: int) -> Decision:
        draft = self._draft(now_ms, request.group_id)

        def sync() -> None:
            match self._known(request.group_id):
                case ClassicGroup() as group:
                    self._changed(draft, group, classic_requests.decide_sync(group, request, token, draft))
                case ConsumerGroup() as group:
                    draft.reply(token, consumer_members.decide_sync(group, request, draft))

        return self._decide(draft, request, token, sync)

    def heartbeat(self, request: Heartbeat, token: Token, now_ms: int) -> Decision:
        draft = self._draft(now_ms, request.group_id)

        def beat() -> None:
            match self._known(request.group_id):
                case ClassicGroup() as group:
                    classic_requests.decide_heartbeat(group, request, token, draft)
                case ConsumerGroup() as group:
                    draft.reply(token, consumer_members.decide_heartbeat(group, request, draft))

        return self._decide(draft, request, token, beat)

    def leave_group(self, request: LeaveGroup, token: Token, now_ms: int) -> Decision:
        draft = self._draft(now_ms)

        def leave() -> None:
            match self._known(request.group_id):
                case ClassicGroup() as group:
                    self._changed(draft, group, classic_requests.decide_leave(group, request, token, draft))
                case ConsumerGroup() as group:
                    left, classic = consumer_members.decide_leave(Workspace(group, draft), request.members, draft)
                    draft.reply(token, LeaveReply(members=left))
                    self._changed(draft, None, classic)

        return self._decide(draft, request, token, leave)

    # --- the consumer protocol -----------------------------------------------------------------------------------

    def consumer_heartbeat(self, request: ConsumerHeartbeat, token: Token, now_ms: int) -> Decision:
        draft = self._draft(now_ms, request.group_id)

        def beat() -> None:
            consumer_heartbeat.check_request(request, self._settings)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                draft.reply(token, self._consumer_leave(request, draft))
                return
            work, is_new = self._consumer_work(request, draft)
            reply = consumer_heartbeat.decide_heartbeat(work, request, draft, is_new_group=is_new)
            draft.reply(token, reply)

        return self._decide(draft, request, token, beat)

    # --- offsets and groups as a whole ---------------------------------------------------------------------------

    def commit_offsets(self, request: CommitOffsets, token: Token, now_ms: int) -> Decision:
        """OffsetCommit and TxnOffsetCommit; the decision is `shared`."""
        draft = self._draft(now_ms)

        def commit() -> None:
            if request.transactional and not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = self._groups.get(request.group_id)
            draft.reply(token, offset_requests.decide_commit(group, request, draft))
            if (
                isinstance(group, ClassicGroup)
                and request.member_id in group.members
                and not request.transactional
            ):
                arm_session(group, group.members[request.member_id], draft)

        return self._decide(draft, request, token, commit, shared=True)

    def delete_offsets(self, request: DeleteOffsets, token: Token, now_ms: int) -> Decision:
        draft = self._draft(now_ms)

        def delete() -> None:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = self._existing(request.group_id)
            draft.reply(token, offset_requests.decide_delete(group, self._offsets, request, draft))

        return self._decide(draft, request, token, delete)

    def delete_group(self, group_id: str, token: Token, now_ms: int) -> Decision:
        draft = self._draft(now_ms)

        def delete() -> None:
            group = self._existing(group_id)
            if not group.is_empty:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
            offset_requests.delete_all(group_id, self._offsets, draft)
            _delete_group(group, draft)
            draft.reply(token, DeleteGroupReply())

        return self._decide(draft, group_id, token, delete)

    def expire(self, group_id: str, now_ms: int) -> Decision:
        """Delete offsets past their retention, and the group if nothing is left of it."""
        group = self._groups.get(group_id)
        if group is None:
            return Decision()
        draft = self._draft(now_ms)
        nothing_left = offset_requests.expire(group, self._offsets, draft)
        joining = isinstance(group, ClassicGroup) and bool(group.pending)
        if nothing_left and group.is_empty and not joining:
            _delete_group(group, draft)
        return draft.decision()

    def partitions_deleted(self, partitions: Collection[TopicPartition], now_ms: int) -> Decision:
        """Delete the offsets of deleted partitions. This affects many groups, so no decision may be under way."""
        draft = self._draft(now_ms)
        for group_id, partition in self._offsets.all_partitions():
            if partition in partitions:
                draft.events.append(OffsetDeleted(group_id, *partition))
        return draft.decision()

    # --- time, topics, leadership --------------------------------------------------------------------------------

    def timer_fired(self, timer: GroupTimer, now_ms: int) -> Decision:
        draft = self._draft(now_ms, timer.group_id)
        match self._groups.get(timer.group_id):
            case ClassicGroup() as group:
                self._changed(draft, group, classic_requests.decide_timer(group, timer, draft))
            case ConsumerGroup() as group:
                classic = consumer_members.decide_timer(Workspace(group, draft), timer, draft)
                self._changed(draft, None, classic)
            case None:
                pass
        return draft.decision()

    def settings_changed(self, settings_of: Mapping[str, GroupSettings]) -> None:
        """Set the settings of groups that have their own; their members learn of it one by one."""
        self._settings_of = settings_of

    def topics_changed(self, topics: TopicsView) -> None:
        self._topics = topics

    def load_finished(self, now_ms: int) -> Decision:
        """Restart the sessions of all members; groups that are now too large are asked to rebalance."""
        draft = self._draft(now_ms)
        for group in self._groups.values():
            self._arm_loaded(group, draft)
        return draft.decision()

    def _arm_loaded(self, group: Group, draft: Draft) -> None:
        if isinstance(group, ClassicGroup):
            for member in group.members.values():
                arm_session(group, member, draft)
            if len(group.members) > self._settings.max_size:
                self._changed(draft, group, prepare_rebalance(group, draft))
        else:
            _arm_consumer(group, self._settings_of.get(group.id, self._settings), draft)

    def empty(self) -> GroupCoordinator:
        """An empty coordinator with the same settings, topics and ids."""
        other = GroupCoordinator(self._settings, self._topics, self._new_id)
        other.settings_changed(self._settings_of)
        return other

    def replace_group(self, group_id: str, found: GroupCoordinator, now_ms: int) -> Decision:
        """Take over a group's state from another coordinator, which read it from the log; waiting clients retry.

        For a group whose state cannot be trusted: nothing about it may be under way.
        """
        draft = self._draft(now_ms)
        before = self._groups.pop(group_id, None)
        if isinstance(before, ClassicGroup):
            release_all(before, ErrorCode.NOT_COORDINATOR, draft)
        self._offsets.replace_group(group_id, found._offsets)
        group = found._groups.get(group_id)
        if group is not None:
            self._groups[group_id] = group
            self._arm_loaded(group, draft)
        return draft.decision()

    def resign(self) -> Decision:
        """Send all waiting clients to look for the new coordinator; nothing may be decided after that."""
        draft = self._draft(0)
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                release_all(group, ErrorCode.NOT_COORDINATOR, draft)
        return Decision(replies=tuple(draft.replies))

    # --- the only mutator ----------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        match event:
            case OffsetCommitted():
                if event.group_id not in self._groups:
                    self._groups[event.group_id] = ClassicGroup(event.group_id)
                self._offsets.apply(event)
            case OffsetDeleted() | TransactionEnded():
                self._offsets.apply(event)
            case GroupStored():
                self._groups[event.group_id] = group_from_record(event)
            case GroupDeleted():
                if isinstance(self._groups.get(event.group_id), ClassicGroup):
                    del self._groups[event.group_id]
            case ClassicGroupChanged():
                self._groups[event.group.id] = event.group
            case _:
                self._apply_consumer(event)

    def apply_commits(self, events: Iterable[OffsetCommitted]) -> None:
        """Like `apply`, for commits of existing groups."""
        for event in events:
            self._offsets.apply_commit(event)

    def apply_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.apply(event)

    def _apply_consumer(self, event: ConsumerRecord) -> None:
        group = self._groups.get(event.group_id)
        if not isinstance(group, ConsumerGroup):
            if not isinstance(event, _MAKES_CONSUMER_GROUP):
                return
            group = self._groups[event.group_id] = ConsumerGroup(event.group_id)
        group.apply(event)
        if isinstance(event, ConsumerEpochDeleted):
            del self._groups[event.group_id]

    # --- inside --------------------------------------------------------------------------------------------------

    def _draft(self, now_ms: int, group_id: str = "") -> Draft:
        settings = self._settings_of.get(group_id, self._settings)
        return Draft(settings, self._topics, self._new_id, now_ms)

    def _decide(
        self,
        draft: Draft,
        request: GroupRequest,
        token: Token,
        decider: Callable[[], None],
        *,
        shared: bool = False,
    ) -> Decision:
        try:
            decider()
        except KafkaError as problem:
            return Decision(replies=((token, error_reply(request, problem.code, problem.message)),), shared=shared)
        return draft.decision(shared=shared)

    def _changed(self, draft: Draft, before: ClassicGroup | None, after: ClassicGroup | None) -> None:
        if after is not None and after is not before:
            draft.events.append(ClassicGroupChanged(after))

    def _known(self, group_id: str) -> Group:
        """The group; UNKNOWN_MEMBER_ID if it does not exist: for a member, such a group has forgotten it."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return group

    def _existing(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def _join(self, request: JoinGroup, token: Token, draft: Draft) -> None:
        settings = self._settings
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._groups.get(request.group_id)
        match group:
            case ClassicGroup():
                self._changed(draft, group, classic_join.decide_join(group, request, token, draft))
            case ConsumerGroup() if not group.is_empty:
                reply, classic = consumer_members.decide_join(Workspace(group, draft), request, draft)
                draft.reply(token, reply)
                self._changed(draft, None, classic)
            case _:
                self._join_new_group(group, request, token, draft)

    def _join_new_group(self, empty: ConsumerGroup | None, request: JoinGroup, token: Token, draft: Draft) -> None:
        if request.member_id != UNKNOWN_MEMBER:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        # Generations continue from the epochs, so that an old member can never pass for a new one.
        generation = 0 if empty is None else empty.epoch
        before = ClassicGroup(request.group_id, generation=generation, state_since_ms=draft.now_ms)
        after = classic_join.decide_join(before, request, token, draft)
        if after is before:
            return
        if empty is not None:
            Workspace(empty, draft).delete_group()
        draft.events.append(before.stored())
        self._changed(draft, before, after)

    def _consumer_work(self, request: ConsumerHeartbeat, draft: Draft) -> tuple[Workspace, bool]:
        """The group to work on, created or converted if this is a join; and whether it is new."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return Workspace(group, draft), group.epoch == 0
        if request.member_epoch == 0:
            if group is None:
                return Workspace(ConsumerGroup(request.group_id), draft), True
            if group.is_empty:
                draft.events.append(GroupDeleted(group.id))
                return Workspace(ConsumerGroup(group.id, group.generation), draft), True
            if may_upgrade(group, self._settings):
                return upgrade(group, draft), False
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")

    def _consumer_leave(self, request: ConsumerHeartbeat, draft: Draft) -> ConsumerHeartbeatReply:
        group = self._existing(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        work = Workspace(group, draft)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            return consumer_heartbeat.decide_static_leave(work, request)
        member = consumer_heartbeat.leaving_member(group, request)
        self._changed(draft, None, consumer_members.fence_members(work, [member.id], draft))
        return ConsumerHeartbeatReply(member_id=member.id, member_epoch=LEAVE_EPOCH)


def _delete_group(group: Group, draft: Draft) -> None:
    if isinstance(group, ClassicGroup):
        draft.events.append(GroupDeleted(group.id))
    else:
        Workspace(group, draft).delete_group()


def _arm_consumer(group: ConsumerGroup, settings: GroupSettings, draft: Draft) -> None:
    for member in group.members.values():
        timeout_ms = settings.consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        draft.arm(TimerKind.SESSION, group.id, member.id, after_ms=timeout_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.uses_classic:
            draft.arm(
                TimerKind.REVOKE, group.id, member.id, after_ms=member.rebalance_timeout_ms, stamp=member.epoch
            )
