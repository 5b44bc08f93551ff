"""A consumer group while one decision about it is made: events are written and their effect is seen at once.

The first event makes a copy of the group and `apply` changes the copy alone, so a decision of several steps
reads each step's result while the group itself stays as it is until the events come back through `apply`.
"""

from __future__ import annotations

from headrace.groups.consumer import ConsumerGroup, ConsumerMember
from headrace.groups.decision import Draft, TimerKind
from headrace.groups.events import (
    ConsumerEpochDeleted,
    ConsumerEpochStored,
    ConsumerMemberDeleted,
    ConsumerPartitionsDeleted,
    ConsumerRecord,
    CurrentAssignmentDeleted,
    RegexDeleted,
    TargetDeleted,
    TargetEpochDeleted,
)

MEMBER_TIMERS = (TimerKind.SESSION, TimerKind.REVOKE, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC)


class Workspace:
    __slots__ = ("_copied", "draft", "group")

    def __init__(self, group: ConsumerGroup, draft: Draft) -> None:
        self.group = group
        self.draft = draft
        self._copied = False

    def write(self, event: ConsumerRecord) -> None:
        if not self._copied:
            self.group = self.group.copy()
            self._copied = True
        self.group.apply(event)
        self.draft.events.append(event)

    def remove_member(self, member_id: str) -> None:
        """Its three records; in Kafka's order, which its own coordinator insists on when it reads them."""
        group_id = self.group.id
        self.write(CurrentAssignmentDeleted(group_id, member_id))
        self.write(TargetDeleted(group_id, member_id))
        self.write(ConsumerMemberDeleted(group_id, member_id))

    def cancel_timers(self, member_id: str) -> None:
        for kind in MEMBER_TIMERS:
            self.draft.cancel(kind, self.group.id, member_id)

    def bump_epoch_if(self, forced: bool) -> None:
        """Write the next group epoch if asked to, or if the subscribed topics are not what they were."""
        group = self.group
        metadata_hash = self.draft.topics.hash_of(group.subscribed_topics)
        if forced or metadata_hash != group.metadata_hash:
            self.write(ConsumerEpochStored(group.id, group.epoch + 1, metadata_hash))
            if group.has_partition_metadata:
                self.write(ConsumerPartitionsDeleted(group.id))

    def drop_unused_regexes(self) -> None:
        for regex in sorted(self.group.regexes):
            if not self.group.regex_users(regex):
                self.write(RegexDeleted(self.group.id, regex))

    def delete_group(self) -> None:
        """Tombstones of all that the group has."""
        group_id = self.group.id
        members = sorted(self.group.members)
        for member_id in members:
            self.write(CurrentAssignmentDeleted(group_id, member_id))
        for member_id in sorted(self.group.members.keys() | self.group.target.keys()):
            self.write(TargetDeleted(group_id, member_id))
        self.write(TargetEpochDeleted(group_id))
        for member_id in members:
            self.write(ConsumerMemberDeleted(group_id, member_id))
        self.drop_unused_regexes()
        if self.group.has_partition_metadata:
            self.write(ConsumerPartitionsDeleted(group_id))
        self.write(ConsumerEpochDeleted(group_id))

    def store_member(self, member: ConsumerMember) -> None:
        self.write(member.stored(self.group.id))
