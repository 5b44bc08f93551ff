"""Model consumers of both protocols, as a client library behaves, for tests and simulations of groups.

A model does one step at a time: it sends what is due, or takes the answer to what it sent. It knows what it owns,
and gives that up when it is told that it no longer is a member. The leader of a classic group assigns for the
others, eagerly or cooperatively (KIP-429).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from headrace.groups.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    by_topic_name,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from headrace.groups.events import Assignment, ClassicProtocol
from headrace.groups.messages import (
    UNKNOWN_MEMBER,
    ClientIdentity,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    GroupReply,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    SyncGroup,
    SyncReply,
)
from headrace.model.errors import ErrorCode
from headrace.testing.group_shell import GroupShell

EAGER = "range"
COOPERATIVE = "cooperative-sticky"
HEARTBEAT_INTERVAL_MS = 3_000
REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 45_000

Partitions = frozenset[tuple[str, int]]


class ModelMember(ABC):
    """What both kinds share."""

    def __init__(self, shell: GroupShell, group_id: str, topics: tuple[str, ...], instance_id: str | None) -> None:
        self.shell = shell
        self.group_id = group_id
        self.topics = topics
        self.instance_id = instance_id
        self.member_id = UNKNOWN_MEMBER
        self.epoch = -1
        """The generation, or the member epoch."""
        self.owned: Partitions = frozenset()
        self.fenced = False
        self.waiting: int | None = None
        self.next_beat_ms = 0

    def cut_off(self) -> None:
        """The connection broke: the request is sent again."""
        self.waiting = None
        self.next_beat_ms = 0

    def step(self) -> None:
        if self.fenced:
            return
        if self.waiting is not None:
            reply = self.shell.answers.pop(self.waiting, None)
            if reply is not None:
                self.waiting = None
                self.take(reply)
        elif self.shell.now_ms >= self.next_beat_ms:
            self.next_beat_ms = self.shell.now_ms + HEARTBEAT_INTERVAL_MS
            self.waiting = self.act()

    @abstractmethod
    def act(self) -> int:
        """Send what is due; the token under which its answer comes."""

    @abstractmethod
    def take(self, reply: GroupReply) -> None: ...

    @abstractmethod
    def leave(self) -> None: ...


class ClassicModel(ModelMember):
    def __init__(
        self,
        shell: GroupShell,
        group_id: str,
        topics: tuple[str, ...],
        instance_id: str | None = None,
        protocol: str = EAGER,
    ) -> None:
        super().__init__(shell, group_id, topics, instance_id)
        self.protocol = protocol
        self.must_join = True
        self.assignments: tuple[tuple[str, bytes], ...] | None = None
        """Set between the join and the sync; empty unless it leads."""
        self.planned_for: dict[str, int] | None = None
        """The topics it assigned last, while it leads: when they change it asks for a rebalance."""

    def cut_off(self) -> None:
        super().cut_off()
        if self.assignments is not None:
            self.must_join = True

    def act(self) -> int:
        if self.planned_for is not None and self.planned_for != self._counts():
            self.must_join = True
        if self.must_join:
            self.assignments = None
            return self.shell.send(self._join())
        if self.assignments is not None:
            return self.shell.send(
                SyncGroup(
                    self.group_id,
                    self.epoch,
                    self.member_id,
                    self.instance_id,
                    CONSUMER_PROTOCOL_TYPE,
                    self.protocol,
                    self.assignments,
                )
            )
        return self.shell.send(Heartbeat(self.group_id, self.epoch, self.member_id, self.instance_id))

    def _join(self) -> JoinGroup:
        if self.protocol == EAGER:
            self.owned = frozenset()
        subscription = Subscription(3, self.topics, _by_topic(self.owned), self.epoch, None)
        return JoinGroup(
            self.group_id,
            self.member_id,
            CONSUMER_PROTOCOL_TYPE,
            (ClassicProtocol(self.protocol, write_subscription(subscription)),),
            SESSION_TIMEOUT_MS,
            REBALANCE_TIMEOUT_MS,
            self.instance_id,
            ClientIdentity("classic", "/127.0.0.1"),
        )

    def take(self, reply: GroupReply) -> None:
        match reply:
            case JoinReply(error=ErrorCode.NONE):
                self._joined(reply)
            case JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = reply.member_id
                self.next_beat_ms = 0
            case SyncReply(error=ErrorCode.NONE):
                self._assigned(_flat(read_assignment(reply.assignment)))
            case JoinReply() | SyncReply() | HeartbeatReply():
                self._refused(reply.error)
            case _:
                raise AssertionError(reply)

    def _joined(self, reply: JoinReply) -> None:
        self.member_id = reply.member_id
        self.epoch = reply.generation
        self.must_join = False
        self.next_beat_ms = 0
        self.assignments = ()
        # One that leads but was spared the assignment cannot know what was assigned: it looks again.
        self.planned_for = {} if reply.skip_assignment else None
        if reply.members and not reply.skip_assignment:
            subscriptions = {member.member_id: read_subscription(member.metadata) for member in reply.members}
            assign = assign_cooperatively if self.protocol == COOPERATIVE else assign_eagerly
            self.planned_for = self._counts()
            plan = assign(subscriptions, self.planned_for)
            self.assignments = tuple(
                (member_id, write_assignment(_by_topic(partitions), 3)) for member_id, partitions in plan.items()
            )

    def _counts(self) -> dict[str, int]:
        return {name: topic.partition_count for name, topic in self.shell.topics.by_name.items()}

    def _assigned(self, assigned: Partitions) -> None:
        self.assignments = None
        gave_up = bool(self.owned - assigned)
        self.owned = assigned
        if gave_up and self.protocol == COOPERATIVE:
            self.must_join = True
            self.next_beat_ms = 0

    def _refused(self, error: ErrorCode) -> None:
        self.next_beat_ms = 0
        self.assignments = None
        match error:
            case ErrorCode.NONE:
                self.next_beat_ms = self.shell.now_ms + HEARTBEAT_INTERVAL_MS
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.must_join = True
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.UNKNOWN_MEMBER_ID:
                self.must_join = True
                self.owned = frozenset()
                self.epoch = -1
                if error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = UNKNOWN_MEMBER
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced = True
                self.owned = frozenset()
            case _:
                self.must_join = True
                self.next_beat_ms = self.shell.now_ms + 500

    def leave(self) -> None:
        self.owned = frozenset()
        if self.instance_id is None and self.member_id != UNKNOWN_MEMBER:
            self.shell.send(LeaveGroup(self.group_id, (Leaver(self.member_id),)))


class ConsumerModel(ModelMember):
    def __init__(
        self,
        shell: GroupShell,
        group_id: str,
        topics: tuple[str, ...],
        instance_id: str | None = None,
        member_id: str = "",
        regex: str | None = None,
    ) -> None:
        super().__init__(shell, group_id, topics, instance_id)
        self.member_id = member_id
        self.epoch = 0
        self.regex = regex
        self.report = True
        """What it owns changed since it last said so."""

    def act(self) -> int:
        full = self.epoch == 0 or self.report
        request = ConsumerHeartbeat(
            self.group_id,
            self.member_id,
            self.epoch,
            self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if full else -1,
            topics=self.topics if full else None,
            regex=self.regex if full else None,
            owned=self._owned_by_id() if full else None,
            client=ClientIdentity("consumer", "/127.0.0.1"),
        )
        return self.shell.send(request)

    def cut_off(self) -> None:
        super().cut_off()
        self.report = True

    def take(self, reply: GroupReply) -> None:
        assert isinstance(reply, ConsumerHeartbeatReply)
        match reply.error:
            case ErrorCode.NONE:
                self.epoch = reply.member_epoch
                self.report = False
                if reply.assignment is not None:
                    assigned = _flat(by_topic_name(reply.assignment, self.shell.topics))
                    self.report = assigned != self.owned
                    self.owned = assigned
                    if self.report:
                        self.next_beat_ms = 0
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.GROUP_ID_NOT_FOUND:
                self.epoch = 0
                self.owned = frozenset()
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced = True
                self.owned = frozenset()
            case _:
                self.next_beat_ms = self.shell.now_ms + 500

    def _owned_by_id(self) -> Assignment:
        by_name = self.shell.topics.by_name
        return {by_name[name].id: numbers for name, numbers in _by_topic(self.owned).items() if name in by_name}

    def leave(self) -> None:
        self.owned = frozenset()
        if self.epoch > 0:
            epoch = -1 if self.instance_id is None else -2
            self.shell.send(ConsumerHeartbeat(self.group_id, self.member_id, epoch, self.instance_id))


def assign_eagerly(subscriptions: Mapping[str, Subscription], counts: Mapping[str, int]) -> dict[str, Partitions]:
    plan: dict[str, set[tuple[str, int]]] = {member_id: set() for member_id in subscriptions}
    for name in sorted(counts):
        subscribers = sorted(id for id, subscription in subscriptions.items() if name in subscription.topics)
        for number in range(counts[name] if subscribers else 0):
            plan[subscribers[number % len(subscribers)]].add((name, number))
    return {member_id: frozenset(partitions) for member_id, partitions in plan.items()}


def assign_cooperatively(
    subscriptions: Mapping[str, Subscription], counts: Mapping[str, int]
) -> dict[str, Partitions]:
    """The eager plan, but what another still owns is left out until it has been given up."""
    wanted = assign_eagerly(subscriptions, counts)
    newest = max(subscription.generation for subscription in subscriptions.values())
    owned = {
        member_id: _flat(subscription.owned) if subscription.generation == newest else frozenset()
        for member_id, subscription in subscriptions.items()
    }
    return {
        member_id: frozenset(
            partition
            for partition in partitions
            if not any(partition in theirs for other, theirs in owned.items() if other != member_id)
        )
        for member_id, partitions in wanted.items()
    }


def _flat(partitions: Mapping[str, frozenset[int]]) -> Partitions:
    return frozenset((name, number) for name, numbers in partitions.items() for number in numbers)


def _by_topic(partitions: Partitions) -> dict[str, frozenset[int]]:
    result: dict[str, set[int]] = {}
    for name, number in partitions:
        result.setdefault(name, set()).add(number)
    return {name: frozenset(numbers) for name, numbers in result.items()}
