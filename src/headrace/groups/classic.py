"""A group of the classic protocol as a value: what it is, and the small steps it is changed by.

Nothing here is changed in place: each step returns a new group, which becomes the state when its event is applied.
A member waits in a join (`joining`) or in a sync (`syncing`) by the token of its request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.groups.embedded import CONSUMER_PROTOCOL_TYPE, read_topics
from headrace.groups.events import ClassicProtocol, GroupStored, StoredMember
from headrace.groups.messages import JoinedMember, JoinGroup, Token
from headrace.groups.states import NEXT, GroupState
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError


@dataclass(frozen=True, slots=True)
class ClassicMember:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]
    """In the order of the member's preference."""
    assignment: bytes = b""
    joining: Token | None = None
    syncing: Token | None = None
    is_new: bool = False
    """Joined for the first time and not yet in a generation: it may expire while it waits."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def protocol_names(self) -> tuple[str, ...]:
        return tuple(protocol.name for protocol in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return next((offered.metadata for offered in self.protocols if offered.name == protocol), b"")

    def rejoined(self, request: JoinGroup, token: Token | None) -> ClassicMember:
        return replace(
            self,
            protocols=request.protocols,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            joining=token,
        )


def rebalance_timeout_ms(request: JoinGroup) -> int:
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    id: str
    state: GroupState = GroupState.EMPTY
    initial: bool = False
    """This rebalance is the first of an empty group: it lasts for the initial delay, however many have joined."""
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    state_since_ms: int = -1
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    """Ids that were handed out (KIP-394) and have not been joined with."""
    pending_sync: frozenset[str] = frozenset()
    member_added: bool = False
    """Someone came during the initial delay, which is then prolonged."""
    common: frozenset[str] | None = field(default=None, compare=False)
    """The protocols that all members offer. Remembered: everyone who joins asks."""

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def waiting_count(self) -> int:
        return sum(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_id(self, instance_id: str | None) -> str | None:
        """The member that has this instance id."""
        if instance_id is None:
            return None
        return next((member.id for member in self.members.values() if member.instance_id == instance_id), None)

    def moved(self, state: GroupState, now_ms: int) -> ClassicGroup:
        assert state in NEXT[self.state], f"{self.id}: {self.state} to {state}"
        initial = self.state is GroupState.EMPTY and state is GroupState.PREPARING_REBALANCE
        return replace(self, state=state, initial=initial, state_since_ms=now_ms)

    def with_member(self, member: ClassicMember) -> ClassicGroup:
        members = dict(self.members)
        before = members.get(member.id)
        members[member.id] = member
        common = None
        if before is None and self.members:
            common = self._common_protocols().intersection(member.protocol_names)
        elif before is not None and before.protocols == member.protocols:
            common = self.common
        leader = self.leader or member.id
        return replace(self, members=members, leader=leader, pending=self.pending - {member.id}, common=common)

    def with_all(self, members: Iterable[ClassicMember]) -> ClassicGroup:
        return replace(self, members={member.id: member for member in members}, common=None)

    def without(self, member_id: str) -> ClassicGroup:
        members = {id: member for id, member in self.members.items() if id != member_id}
        leader = self.leader
        if leader == member_id:
            leader = next(iter(members), None)
        return replace(
            self,
            members=members,
            leader=leader,
            pending=self.pending - {member_id},
            pending_sync=self.pending_sync - {member_id},
            common=None,
        )

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member; UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another has taken its instance id."""
        if instance_id is not None:
            existing = self.static_id(instance_id)
            if existing is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """A newcomer must share the protocol type, and a protocol with everybody."""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in names)
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            # The last one left while this newcomer was on its way to join with the id it had been given.
            return any(True for _ in names)
        return not self._common_protocols().isdisjoint(names)

    def _common_protocols(self) -> frozenset[str]:
        if self.common is not None:
            return self.common
        offers = Counter(name for member in self.members.values() for name in set(member.protocol_names))
        common = frozenset(name for name, count in offers.items() if count == len(self.members))
        object.__setattr__(self, "common", common)
        return common

    def select_protocol(self) -> str:
        """Every member votes for the first of its list that all support; most votes win, then the name."""
        assert self.members, "an empty group has no protocol"
        common = self._common_protocols()
        votes = Counter(
            next(name for name in member.protocol_names if name in common) for member in self.members.values()
        )
        return min(votes, key=lambda name: (-votes[name], name))

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """What the leader is told."""
        return tuple(
            JoinedMember(member.id, member.instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics its members read, or None when that cannot be known."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            subscriptions = [read_topics(member.metadata(self.protocol)) for member in self.members.values()]
        except ProtocolError:
            return None
        return frozenset(topic for topics in subscriptions for topic in topics)

    def is_subscribed(self, topic: str) -> bool:
        """When in doubt, yes: offsets that may be in use are neither deleted nor expired."""
        topics = self.subscribed_topics()
        return self.uses_consumer_protocol if topics is None else topic in topics

    def stored(self, assignments: Mapping[str, bytes] | None = None) -> GroupStored:
        """The record of this group, with the members' assignments or these."""
        members = tuple(
            StoredMember(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol),
                member.assignment if assignments is None else assignments.get(member.id, b""),
            )
            for member in self.members.values()
        )
        return GroupStored(
            self.id,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_since_ms,
            members,
        )


def group_from_record(record: GroupStored) -> ClassicGroup:
    """The group as a new coordinator finds it: stable, or empty."""
    members = {stored.member_id: _member_from_record(stored, record.protocol or "") for stored in record.members}
    return ClassicGroup(
        record.group_id,
        state=GroupState.STABLE if members else GroupState.EMPTY,
        generation=record.generation,
        protocol_type=record.protocol_type or None,
        protocol=record.protocol,
        leader=record.leader,
        state_since_ms=record.state_timestamp_ms,
        members=members,
    )


def _member_from_record(stored: StoredMember, protocol: str) -> ClassicMember:
    rebalance_ms = stored.session_timeout_ms if stored.rebalance_timeout_ms < 0 else stored.rebalance_timeout_ms
    return ClassicMember(
        stored.member_id,
        stored.instance_id,
        stored.client_id,
        stored.client_host,
        rebalance_ms,
        stored.session_timeout_ms,
        (ClassicProtocol(protocol, stored.subscription),),
        stored.assignment,
    )
