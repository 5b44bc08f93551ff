"""A group of the consumer protocol (KIP-848): its state, which only `apply` of its records changes.

The group epoch grows with every change of members, subscriptions or topics; the target assignment is computed for
an epoch; each member moves to the target in its own time, and its own epoch says how far it has come.

Records may come from a compacted log, so `apply` takes each for the truth of its key and asks no questions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from headrace.groups.events import (
    Assignment,
    ClassicMetadata,
    ConsumerEpochDeleted,
    ConsumerEpochStored,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerPartitionsDeleted,
    ConsumerPartitionsStored,
    ConsumerRecord,
    CurrentAssignmentDeleted,
    CurrentAssignmentStored,
    RegexDeleted,
    RegexStored,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
)
from headrace.groups.states import ConsumerGroupState, MemberState
from headrace.groups.topics import TopicsView
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""The member will be back under its instance id: its partitions wait for it."""
NO_TARGET: Assignment = {}


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    """Set when the member speaks the classic protocol."""
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)

    @property
    def uses_classic(self) -> bool:
        return self.classic is not None

    def reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at_epoch(self, epoch: int) -> ConsumerMember:
        """Moved to the epoch; the one before is kept for a member that never heard of the move."""
        return self if epoch == self.epoch else replace(self, epoch=epoch, previous_epoch=self.epoch)

    def moved_to(
        self, epoch: int, previous_epoch: int, state: MemberState, assigned: Assignment, revoking: Assignment
    ) -> ConsumerMember:
        """Like `replace`, and much cheaper: members move all the time."""
        return ConsumerMember(
            self.id,
            epoch,
            previous_epoch,
            state,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topics,
            self.regex,
            self.assignor,
            self.classic,
            assigned,
            revoking,
        )

    def stored(self, group_id: str) -> ConsumerMemberStored:
        return ConsumerMemberStored(
            group_id,
            self.id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            tuple(sorted(self.topics)),
            self.regex,
            self.rebalance_timeout_ms,
            self.assignor,
            self.classic,
        )

    def stored_assignment(self, group_id: str) -> CurrentAssignmentStored:
        return CurrentAssignmentStored(
            group_id, self.id, self.epoch, self.previous_epoch, int(self.state), self.assigned, self.revoking
        )


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    __slots__ = (
        "_patterns",
        "_quiet_for",
        "_subscribed",
        "assigned_at_ms",
        "assignment_epoch",
        "epoch",
        "has_partition_metadata",
        "id",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "statics",
        "target",
    )

    def __init__(self, group_id: str, epoch: int = 0) -> None:
        self.id = group_id
        self.epoch = epoch
        self.assignment_epoch = epoch
        self.assigned_at_ms = 0
        """When the target was computed; 0 if that is not known."""
        self.metadata_hash = 0
        self.has_partition_metadata = False
        self.members: dict[str, ConsumerMember] = {}
        self.statics: dict[str, str] = {}
        """Member ids by instance id."""
        self.target: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[TopicId, int], str] = {}
        """Who has a partition, or has yet to give it up."""
        self._subscribed: frozenset[str] | None = None
        self._patterns: frozenset[str] | None = None
        self._quiet_for: TopicsView | None = None

    def copy(self) -> ConsumerGroup:
        other = ConsumerGroup(self.id, self.epoch)
        other.assignment_epoch = self.assignment_epoch
        other.assigned_at_ms = self.assigned_at_ms
        other.metadata_hash = self.metadata_hash
        other.has_partition_metadata = self.has_partition_metadata
        other.members = dict(self.members)
        other.statics = dict(self.statics)
        other.target = dict(self.target)
        other.regexes = dict(self.regexes)
        other.owners = dict(self.owners)
        other._subscribed, other._patterns = self._subscribed, self._patterns
        return other

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def subscribed_topics(self) -> frozenset[str]:
        if self._subscribed is None:
            self._subscribed = frozenset().union(*(self.topics_of(member) for member in self.members.values()))
        return self._subscribed

    @property
    def patterns(self) -> frozenset[str]:
        """What members subscribe to by pattern. Remembered: every heartbeat asks."""
        if self._patterns is None:
            self._patterns = frozenset(
                member.regex for member in self.members.values() if member.regex is not None
            )
        return self._patterns

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """By name and by pattern."""
        resolved = self.regexes.get(member.regex or "")
        return member.topics if resolved is None else member.topics | resolved.topics

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self.statics.get(instance_id or "")
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str, instance_id: str | None) -> Assignment:
        """A static member has its target under its instance id, whatever its member id was."""
        return self.target.get(self.statics.get(instance_id or "", member_id), NO_TARGET)

    def preferred_assignor(self, default: str) -> str:
        """Most votes win, the first name of a tie."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return min(votes, key=lambda name: (-votes[name], name)) if votes else default

    def regex_users(self, regex: str) -> int:
        return sum(member.regex == regex for member in self.members.values())

    def is_quiet(self, topics: TopicsView) -> bool:
        """Whether its epoch need not grow. Remembered: every heartbeat asks."""
        if self._quiet_for is topics:
            return True
        quiet = (
            not self.patterns and not self.regexes and topics.hash_of(self.subscribed_topics) == self.metadata_hash
        )
        if quiet:
            self._quiet_for = topics
        return quiet

    def may_assign(self, interval_ms: int, now_ms: int) -> bool:
        """Whether the last assignment is long enough ago. A clock that was set back holds nothing up."""
        return not self.assigned_at_ms or not 0 <= now_ms - self.assigned_at_ms < interval_ms

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Something that the target gives it is still with someone else."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            self.owners.get((topic_id, partition), member.id) != member.id
            for topic_id, partitions in self.target_of(member.id, member.instance_id).items()
            for partition in partitions
        )

    def apply(self, event: ConsumerRecord) -> None:
        self._quiet_for = None
        match event:
            case ConsumerEpochStored():
                self.epoch, self.metadata_hash = event.epoch, event.metadata_hash
            case ConsumerEpochDeleted():
                self.epoch = -1
            case ConsumerPartitionsStored() | ConsumerPartitionsDeleted():
                self.has_partition_metadata = isinstance(event, ConsumerPartitionsStored)
            case ConsumerMemberStored():
                self._apply_member(event)
            case ConsumerMemberDeleted():
                self._remove_member(event.member_id)
            case TargetEpochStored():
                self.assignment_epoch, self.assigned_at_ms = event.assignment_epoch, event.timestamp_ms
            case TargetEpochDeleted():
                self.assignment_epoch = -1
            case TargetStored():
                self.target[event.member_id] = event.partitions
            case TargetDeleted():
                self.target.pop(event.member_id, None)
            case CurrentAssignmentStored():
                self._apply_assignment(event)
            case CurrentAssignmentDeleted():
                self._release(event.member_id)
            case RegexStored():
                resolved = ResolvedRegex(frozenset(event.topics), event.version, event.timestamp_ms)
                self.regexes[event.regex] = resolved
                self._subscribed = None
            case RegexDeleted():
                self.regexes.pop(event.regex, None)
                self._subscribed = None

    def _apply_member(self, event: ConsumerMemberStored) -> None:
        old = self.members.get(event.member_id)
        if old is not None and old.instance_id is not None and self.statics.get(old.instance_id) == old.id:
            del self.statics[old.instance_id]
        if event.instance_id is not None:
            self.statics[event.instance_id] = event.member_id
        before = ConsumerMember(event.member_id) if old is None else old
        member = self.members[event.member_id] = ConsumerMember(
            before.id,
            before.epoch,
            before.previous_epoch,
            before.state,
            event.instance_id,
            event.rack_id,
            event.client_id,
            event.client_host,
            event.rebalance_timeout_ms,
            frozenset(event.topics),
            event.regex or None,
            event.assignor,
            event.classic,
            before.assigned,
            before.revoking,
        )
        self._note_subscription(old, member)

    def _note_subscription(self, old: ConsumerMember | None, new: ConsumerMember) -> None:
        """A member that comes can only add to what was remembered; one that wants something else may take away."""
        if old is None:
            if self._subscribed is not None:
                self._subscribed |= self.topics_of(new)
            if self._patterns is not None and new.regex is not None:
                self._patterns |= {new.regex}
        elif (old.topics, old.regex) != (new.topics, new.regex):
            self._subscribed = self._patterns = None

    def _remove_member(self, member_id: str) -> None:
        self._disown(member_id)
        self._subscribed = self._patterns = None
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id and self.statics.get(member.instance_id) == member_id:
            del self.statics[member.instance_id]

    def _apply_assignment(self, event: CurrentAssignmentStored) -> None:
        self._disown(event.member_id)
        old = self.members.get(event.member_id) or ConsumerMember(event.member_id)
        known = event.state in MemberState._value2member_map_
        self.members[event.member_id] = old.moved_to(
            event.epoch,
            event.previous_epoch,
            MemberState(event.state) if known else MemberState.UNKNOWN,
            event.assigned,
            event.revoking,
        )
        for assignment in (event.assigned, event.revoking):
            for topic_id, partitions in assignment.items():
                self.owners.update(((topic_id, partition), event.member_id) for partition in partitions)

    def _release(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._disown(member_id)
            self.members[member_id] = member.moved_to(LEAVE_EPOCH, LEAVE_EPOCH, member.state, {}, {})

    def _disown(self, member_id: str) -> None:
        """Nothing is its own any more."""
        member = self.members.get(member_id)
        if member is None:
            return
        for assignment in (member.assigned, member.revoking):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member_id:
                        del self.owners[topic_id, partition]
