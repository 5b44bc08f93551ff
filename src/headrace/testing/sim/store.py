"""The simulated store, which looks at every write of the cluster's metadata: what a controller may never do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.coordination.contract import Create, Delete, Op, Put
from headrace.coordination.memory import MemoryCluster
from headrace.env import Env
from headrace.metadata.layout import BROKER_IDS, TOPICS

NO_LEADER = -1


class State(NamedTuple):
    """A partition as the controller wrote it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    incarnation: int
    elr: tuple[int, ...] = ()

    @property
    def complete(self) -> set[int]:
        """Who has every committed record, but for those that lost some."""
        return {*self.isr, *self.elr}


class WatchedStore(MemoryCluster):
    def __init__(self, env: Env, violated: Callable[[str], None]) -> None:
        super().__init__(env)
        self._violated = violated
        self.states: dict[tuple[str, int], State] = {}
        """By topic and partition."""
        self.moved: set[tuple[str, int]] = set()
        """Partitions whose replicas were not always the same brokers."""
        self.changes = 0
        """How often they changed."""
        self._controllers: dict[int, str] = {}
        self._last_controller_epoch = 0
        self.led_since: dict[tuple[str, int], float] = {}
        """When the present leader of a partition was elected."""
        self.lossy: dict[tuple[str, int], set[int]] = {}
        """Brokers that count as having everything and whose machines have lost records since."""
        self._unaware: set[int] = set()
        """Brokers whose machines have lost records since they registered: they may still be let in."""

    def apply(self, ops: Sequence[Op], session_id: str) -> list[int]:
        versions = super().apply(ops, session_id)
        for op in ops:
            if op.path.startswith(TOPICS + "/") and isinstance(op, Create | Put | Delete):
                self._look_at(op, op.path[len(TOPICS) + 1 :].split("/"), session_id)
            elif op.path.startswith(BROKER_IDS + "/") and isinstance(op, Create):
                self._unaware.discard(int(op.path.rpartition("/")[2]))
        return versions

    def machine_lost(self, broker: int) -> None:
        """What this broker's machine had not written to its device is gone."""
        self.changes += 1
        self._unaware.add(broker)
        for key, state in self.states.items():
            if broker in state.complete:
                self.lossy.setdefault(key, set()).add(broker)

    def others_have_all(self, broker: int) -> bool:
        """Whether the loss of this broker's records would leave each of them somewhere.

        Of two that lost theirs, and have not said so yet, a controller could make the in-sync set.
        """
        return not self._unaware - {broker} and all(
            broker not in state.complete
            or (state.complete - {broker} and not self.lossy.get(key, set()) - {broker})
            for key, state in self.states.items()
        )

    def _look_at(self, op: Create | Put | Delete, path: list[str], session_id: str) -> None:
        if path[-1] == "state":
            self.changes += 1
            key = path[0], int(path[2])
            if isinstance(op, Delete):
                self.states.pop(key, None)
                self.lossy.pop(key, None)
            else:
                self._look_at_state(key, json.loads(op.value), session_id)

    def _look_at_state(self, key: tuple[str, int], fields: dict[str, object], session_id: str) -> None:
        name = f"{key[0]}-{key[1]}"
        epoch = fields["controller_epoch"]
        assert isinstance(epoch, int)
        if epoch < self._last_controller_epoch:
            self._violated(f"{name} was written by a controller of epoch {epoch}, which is over")
        self._last_controller_epoch = max(epoch, self._last_controller_epoch)
        if self._controllers.setdefault(epoch, session_id) != session_id:
            self._violated(f"{name} was written by a second controller in epoch {epoch}")
        replicas = fields["replicas"]
        assert isinstance(replicas, list)
        leader, leader_epoch, isr = fields["leader"], fields["leader_epoch"], fields["isr"]
        assert isinstance(leader, int)
        assert isinstance(leader_epoch, int)
        assert isinstance(isr, list)
        incarnation = fields["leader_incarnation"]
        assert isinstance(incarnation, int)
        elr = fields.get("elr", [])
        assert isinstance(elr, list)
        state = State(leader, leader_epoch, tuple(isr), tuple(replicas), incarnation, tuple(elr))
        if not state.complete <= set(replicas) or set(elr) & set(isr):
            self._violated(f"{name}: in sync {isr} and eligible {elr} of the replicas {replicas}")
        if not isr:
            self._violated(f"{name}: the in-sync set is empty")
        if leader != NO_LEADER and leader not in isr:
            self._violated(f"{name}: the leader {leader} is not in the in-sync set {isr}")
        before = self.states.get(key)
        if before is None or before.leader != leader:
            self.led_since[key] = self._env.clock.monotonic()
        if before is not None:
            self._compare(name, before, state)
            if set(before.replicas) != set(replicas):
                self.moved.add(key)
        self.states[key] = state
        joined = state.complete - before.complete if before is not None else set()
        lossy = self.lossy.get(key, set()) & state.complete | joined & self._unaware
        self.lossy[key] = lossy

    def _compare(self, name: str, before: State, after: State) -> None:
        if after.leader_epoch < before.leader_epoch:
            self._violated(
                f"{name}: the leader epoch went back from {before.leader_epoch} to {after.leader_epoch}"
            )
        same = after.leader_epoch == before.leader_epoch
        if same and (after.leader, after.incarnation) != (before.leader, before.incarnation):
            self._violated(f"{name}: two leaders, {before} and {after}, in one epoch")
        # Who joins in the write that ends a move was vouched for by the leader, which may leave in the same.
        is_moved = set(after.replicas) != set(before.replicas)
        if not is_moved and not set(after.isr) & before.complete:
            self._violated(f"{name}: nobody who was in sync or eligible in {before} is in sync in {after}")
