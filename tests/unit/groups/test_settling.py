"""Random members of both protocols, crashes, lost answers, failed writes and coordinator restarts (R-CON-1 to 5).

The world is seeded, so a failing seed can be run again alone. After every step the invariants of the architecture
are checked; then disturbances stop, and the group must settle with every partition owned once.
"""

from __future__ import annotations

import random

import pytest

from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.embedded import read_assignment
from headrace.groups.events import ConsumerEpochStored, GroupStored
from headrace.groups.messages import CommitOffsets, CommitReply, FetchOffsets, OffsetToCommit
from headrace.groups.settings import GroupSettings
from headrace.groups.states import ConsumerGroupState, GroupState
from headrace.groups.topics import GroupTopic
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.testing.group_members import COOPERATIVE, EAGER, ClassicModel, ConsumerModel, ModelMember
from headrace.testing.group_shell import GroupShell, topic

GROUP = "orders"
MAX_MEMBERS = 6


class World:
    def __init__(self, seed: int, kinds: tuple[str, ...]) -> None:
        self.random = random.Random(seed)
        self.kinds = kinds
        self.counts = {"a": 5, "b": 3}
        self.incarnations = {"a": 0, "b": 0}
        self.shell = GroupShell(GroupSettings(initial_rebalance_delay_ms=1_000), self._topics())
        self.members: list[ModelMember] = []
        self.acknowledged: dict[TopicPartition, int] = {}
        self.names = 0
        self.position = 0

    def _topics(self) -> list[GroupTopic]:
        return [topic(name, count, self.incarnations[name]) for name, count in self.counts.items()]

    # --- what can happen

    def start(self) -> None:
        if len(self.members) >= MAX_MEMBERS:
            return
        self.names += 1
        static = self.random.random() < 0.3
        instance_id = f"static{self.random.randrange(3)}" if static else None
        if any(member.instance_id == instance_id for member in self.members if static):
            return
        topics = self.random.choice((("a",), ("a", "b"), ("b",), ("a", "b")))
        kind = self.random.choice(self.kinds)
        if kind == "consumer":
            regex = "[ab]" if self.random.random() < 0.2 else None
            names = () if regex else topics
            member: ModelMember = ConsumerModel(self.shell, GROUP, names, instance_id, f"m{self.names}", regex)
        else:
            member = ClassicModel(self.shell, GROUP, topics, instance_id, kind)
        self.members.append(member)

    def crash(self) -> None:
        if self.members:
            self.members.pop(self.random.randrange(len(self.members)))

    def leave(self) -> None:
        if self.members:
            self.members.pop(self.random.randrange(len(self.members))).leave()

    def lose_answer(self) -> None:
        if self.members:
            member = self.random.choice(self.members)
            if member.waiting is not None:
                self.shell.answers.pop(member.waiting, None)
                member.cut_off()

    def restart(self) -> None:
        self.shell.restart()
        for member in self.members:
            member.cut_off()

    def fail_append(self) -> None:
        self.shell.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS

    def pause(self) -> None:
        self.shell.advance(self.random.choice((10_000, 50_000, 70_000)))

    def change_topics(self) -> None:
        name = self.random.choice(list(self.counts))
        if self.random.random() < 0.7:
            self.counts[name] = min(self.counts[name] + 1, 9)
        else:
            self.incarnations[name] += 1
        self.shell.set_topics(self._topics())

    def commit(self) -> None:
        """By a member, with what it believes; what is acknowledged must stay."""
        if not self.members:
            return
        member = self.random.choice(self.members)
        self.position += 1
        partition = TopicPartition(self.random.choice("ab"), self.random.randrange(3))
        offset = OffsetToCommit(*partition, self.position)
        request = CommitOffsets(GROUP, (offset,), member.epoch, member.member_id, member.instance_id)
        if self.shell.ask(request, CommitReply).errors == (ErrorCode.NONE,):
            self.acknowledged[partition] = self.position

    def step(self) -> None:
        for member in self.random.sample(self.members, len(self.members)):
            if self.random.random() < 0.8:
                member.step()
        self.shell.advance(self.random.choice((0, 50, 500, 2_000)))

    def disturb(self) -> None:
        chance = self.random.random()
        for share, what in (
            (0.06, self.start),
            (0.02, self.crash),
            (0.02, self.leave),
            (0.03, self.lose_answer),
            (0.01, self.restart),
            (0.01, self.fail_append),
            (0.005, self.pause),
            (0.01, self.change_topics),
            (0.15, self.commit),
        ):
            if chance < share:
                what()
                return
            chance -= share
        self.step()

    def calm(self) -> None:
        """Nothing goes wrong any more; long enough for every timeout there is."""
        self.shell.append_failure = None
        for _ in range(400):
            for member in self.members:
                member.step()
            self.shell.advance(1_000)


def check_invariants(world: World) -> None:
    group = world.shell.coordinator.group(GROUP)
    if isinstance(group, ConsumerGroup):
        held = [
            (topic_id, number)
            for member in group.members.values()
            for assignment in (member.assigned, member.revoking)
            for topic_id, numbers in assignment.items()
            for number in numbers
        ]
        assert len(held) == len(set(held)), "a partition with two owners"
        assert set(held) == group.owners.keys()
        check_clients(world, group)
        assert group.assignment_epoch <= group.epoch
        assert all(member.epoch <= group.epoch for member in group.members.values())
    for partition, offset in world.acknowledged.items():
        reply = world.shell.coordinator.fetch_offsets(FetchOffsets(GROUP, (partition,)))
        assert reply.offsets[0].offset == offset, "an acknowledged commit went back"


def check_clients(world: World, group: ConsumerGroup) -> None:
    """A client never reads what the coordinator has given away: together with the above, one reader for each."""
    if any(world.incarnations.values()):
        return  # The model knows topics by name only.
    for client in world.members:
        member = group.members.get(client.member_id)
        if member is not None and client.epoch in (member.epoch, member.previous_epoch):
            for name, number in client.owned:
                topic_id = topic(name, 0).id
                known = member.assigned.get(topic_id, frozenset()) | member.revoking.get(topic_id, frozenset())
                assert number in known, f"{client.member_id} reads {name}-{number} without right"


def check_log(world: World) -> None:
    """Generations and epochs only grow, and no generation gives a partition to two members."""
    last = 0
    for event in world.shell.log:
        if isinstance(event, GroupStored):
            assert event.generation >= last
            last = event.generation
            assigned = [
                (name, number)
                for member in event.members
                for name, numbers in read_assignment(member.assignment).items()
                for number in numbers
            ]
            assert len(assigned) == len(set(assigned))
        elif isinstance(event, ConsumerEpochStored):
            assert event.epoch >= last
            last = event.epoch


def check_recovery(world: World) -> None:
    """What a new coordinator reads is what this one knows, except for the requests that wait in a rebalance."""
    shell = world.shell
    other = GroupCoordinator(shell.settings, shell.topics, lambda: "unused")
    other.apply_all(shell.log)
    mine, theirs = shell.coordinator.group(GROUP), other.group(GROUP)
    if isinstance(mine, ConsumerGroup):
        assert isinstance(theirs, ConsumerGroup)
        assert (mine.epoch, mine.assignment_epoch, mine.members) == (
            theirs.epoch,
            theirs.assignment_epoch,
            theirs.members,
        )
        assert (mine.target, mine.owners, mine.regexes) == (theirs.target, theirs.owners, theirs.regexes)
        assert mine.statics == theirs.statics
    elif isinstance(mine, ClassicGroup) and mine.state is GroupState.STABLE:
        assert isinstance(theirs, ClassicGroup)
        assert (mine.generation, mine.leader, mine.protocol) == (theirs.generation, theirs.leader, theirs.protocol)
        assert {id: member.assignment for id, member in mine.members.items()} == {
            id: member.assignment for id, member in theirs.members.items()
        }


def check_settled(world: World) -> None:
    live = [member for member in world.members if not member.fenced]
    group = world.shell.coordinator.group(GROUP)
    if not live:
        assert group is None or group.is_empty
        return
    assert group is not None
    assert group.state in (GroupState.STABLE, ConsumerGroupState.STABLE)
    assert len(group.members) == len(live)
    owned = [partition for member in live for partition in member.owned]
    assert len(owned) == len(set(owned)), "two members own the same partition"
    subscribed = {
        name
        for member in live
        for name in (("a", "b") if isinstance(member, ConsumerModel) and member.regex else member.topics)
    }
    assert set(owned) == {(name, number) for name in subscribed for number in range(world.counts[name])}


def run(seed: int, kinds: tuple[str, ...], steps: int = 300) -> World:
    world = World(seed, kinds)
    for _ in range(steps):
        world.disturb()
        check_invariants(world)
    check_recovery(world)
    world.calm()
    check_invariants(world)
    check_settled(world)
    check_log(world)
    check_recovery(world)
    return world


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(
    "kinds",
    [(EAGER,), (COOPERATIVE,), ("consumer",), (EAGER, "consumer"), (COOPERATIVE, "consumer")],
    ids=["eager", "cooperative", "consumer", "eager-migrating", "cooperative-migrating"],
)
def test_groups_keep_their_invariants_and_settle(seed: int, kinds: tuple[str, ...]) -> None:
    """R-CON-1, R-CON-2: no partition twice, none forgotten, epochs grow, acknowledged commits stay."""
    run(seed, kinds)


def test_a_seed_is_repeatable() -> None:
    first, second = run(7, ("consumer", EAGER)), run(7, ("consumer", EAGER))
    assert first.shell.log == second.shell.log
