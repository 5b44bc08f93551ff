"""Carries out a plan: starts the moves, shows their progress, ends when all are done."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

from headrace.cli.common.errors import explain_kafka
from headrace.cli.common.failure import FAILED, PARTLY_DONE, CommandError
from headrace.cli.common.output import note, plural, size_text
from headrace.cli.common.screen import Screen
from headrace.cli.partition import throttle
from headrace.cli.partition.planning import Move, assignment, replica_sizes, some
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.reassigning import MovingPartition, alter_reassignments, elect_leaders, list_reassignments
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

LOOK_SECONDS = 0.5
BEHIND_SECONDS = 5.0
NOTE_SECONDS = 10.0
"""Between lines where there is no terminal to draw on."""
RATE_LOOKS = 10
BAR_WIDTH = 30
MAX_PER_REQUEST = 1000


async def carry_out(cluster: Cluster, moves: Sequence[Move], bytes_per_second: int | None, wait: bool) -> None:
    """Begin all moves; with `wait` until they are done, and their first replicas lead."""
    limited = None if bytes_per_second is None else await throttle.limit(cluster, moves, bytes_per_second)
    begun = await _begin(cluster, moves)
    if not begun:
        await _lift(cluster, limited)
        raise CommandError("No partition is being moved.", FAILED)
    if not wait:
        note(f"{plural(len(begun), 'partition')} will move; `headrace partition status` shows the progress.")
        return
    await until_done(cluster, begun)
    await _lift(cluster, limited)
    elsewhere = await _not_arrived(cluster, begun)
    arrived = [move for move in begun if move.partition not in elsewhere]
    await _elect(cluster, arrived)
    if arrived:
        note(f"Moved {plural(len(arrived), 'partition')}.")
    if elsewhere:
        verb = "is not where it was" if len(elsewhere) == 1 else "are not where they were"
        told = f"{some(elsewhere)} {verb} to go: the move was cancelled, or another one came after it."
        raise CommandError(told, PARTLY_DONE if arrived else FAILED)
    if len(begun) < len(moves):
        raise CommandError(f"{plural(len(moves) - len(begun), 'partition')} did not move.", PARTLY_DONE)


async def _lift(cluster: Cluster, limited: throttle.Pairs | None) -> None:
    """The throttle of a broker applies to all moves, so the last move to end removes it."""
    if limited is None:
        return
    moving = await list_reassignments(cluster)
    await throttle.lift_pairs(cluster, limited, moving)
    if not moving:
        await throttle.lift(cluster, ())


async def _elect(cluster: Cluster, moves: Sequence[Move]) -> None:
    led = await elect_leaders(cluster, [move.partition for move in moves if move.before[0] != move.after[0]])
    late = [
        name
        for name, error in led.items()
        if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
    ]
    if late:
        note(f"{plural(len(late), 'partition')} could not be led by the first replica yet: {some(late)}.")


async def _not_arrived(cluster: Cluster, moves: Sequence[Move]) -> list[TopicPartition]:
    """Partitions whose move has ended without reaching its target; not those whose topic was deleted."""
    elsewhere: list[TopicPartition] = []

    async def have_arrived() -> bool:
        nonlocal elsewhere
        now = assignment(await cluster.metadata())
        elsewhere = [move.partition for move in moves if now.get(move.partition, move.after) != move.after]
        return not elsewhere

    await seen_soon(cluster, have_arrived)
    return elsewhere


async def seen_soon(cluster: Cluster, holds: Callable[[], Awaitable[bool]]) -> bool:
    """Whether it holds; the broker that is asked may be behind the controller for a moment."""
    clock = cluster.env.clock
    deadline = clock.monotonic() + BEHIND_SECONDS
    while not await holds():
        if clock.monotonic() > deadline:
            return False
        await clock.sleep(LOOK_SECONDS)
    return True


async def _begin(cluster: Cluster, moves: Sequence[Move]) -> list[Move]:
    begun: list[Move] = []
    refused: dict[TopicPartition, KafkaError] = {}
    for start in range(0, len(moves), MAX_PER_REQUEST):
        part = moves[start : start + MAX_PER_REQUEST]
        outcomes = await alter_reassignments(cluster, {move.partition: move.after for move in part})
        begun += [move for move in part if outcomes.get(move.partition) is None]
        refused |= {name: error for name, error in outcomes.items() if error is not None}
    for name, error in refused.items():
        note(explain_kafka(error, str(name)).message)
    return begun


async def until_done(cluster: Cluster, moves: Sequence[Move]) -> None:
    """Draw a bar until none of these is under way."""
    shown = _Shown(cluster, moves)
    while True:
        try:
            moving = await list_reassignments(cluster)
            left = {move.partition: moving[move.partition] for move in moves if move.partition in moving}
            copied = await copied_bytes(cluster, left)
        except ClientError as error:
            note(f"Cannot reach the cluster at the moment: {error}")
            await cluster.env.clock.sleep(LOOK_SECONDS)
            continue
        shown.draw(left, copied)
        if not left:
            return
        await cluster.env.clock.sleep(LOOK_SECONDS)


async def copied_bytes(
    cluster: Cluster, moving: Mapping[TopicPartition, MovingPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """For each partition under way how many bytes its new replicas have, and how many they should have."""
    if not moving:
        return {}
    alive = (await cluster.metadata([])).brokers
    brokers = {one for state in moving.values() for one in state.replicas} & set(alive)
    sizes = await replica_sizes(cluster, sorted(brokers))
    found = {}
    for name, state in moving.items():
        old = [one for one in state.replicas if one not in state.adding]
        whole = max((sizes.get((one, name), 0) for one in old), default=0)
        have = sum(min(sizes.get((one, name), 0), whole) for one in state.adding)
        found[name] = have, whole * len(state.adding)
    return found


class _Shown:
    def __init__(self, cluster: Cluster, moves: Sequence[Move]) -> None:
        self._clock = cluster.env.clock
        self._moves = {move.partition: move for move in moves}
        self._screen = Screen(err=True) if sys.stderr.isatty() else None
        self._looks: deque[tuple[float, int]] = deque(maxlen=RATE_LOOKS)
        self._noted = self._clock.monotonic()

    def draw(
        self, left: Mapping[TopicPartition, MovingPartition], copied: Mapping[TopicPartition, tuple[int, int]]
    ) -> None:
        done = sum(move.bytes_to_copy for name, move in self._moves.items() if name not in left)
        have = done + sum(bytes_had for bytes_had, _ in copied.values())
        whole = done + sum(bytes_wanted for _, bytes_wanted in copied.values())
        now = self._clock.monotonic()
        self._looks.append((now, have))
        line = self._line(len(self._moves) - len(left), have, whole)
        if self._screen is not None:
            self._screen.draw([line])
        elif left and now - self._noted >= NOTE_SECONDS:
            self._noted = now
            note(line)

    def _line(self, arrived: int, have: int, whole: int) -> str:
        part = have / whole if whole else arrived / len(self._moves)
        filled = int(part * BAR_WIDTH)
        bar = "#" * filled + "-" * (BAR_WIDTH - filled)
        rate = f", {size_text(int(self._rate()))}/s" if len(self._looks) > 1 else ""
        return (
            f"[{bar}] {part:4.0%}  {arrived} of {plural(len(self._moves), 'partition')}, "
            f"{size_text(have)} of {size_text(whole)}{rate}"
        )

    def _rate(self) -> float:
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        return max(last - first, 0) / max(ended - began, 0.001)
