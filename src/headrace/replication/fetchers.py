"""The fetchers of a broker: some for each leader it follows, each with its share of the partitions (R-REP-2)."""

from __future__ import annotations

from headrace.env import Env
from headrace.replication.fetcher import Fetcher, FetchSettings, Key
from headrace.replication.partition import Partition
from headrace.replication.peers import Peers
from headrace.replication.throttle import Side


class Fetchers:
    def __init__(
        self, env: Env, local_id: int, peers: Peers, settings: FetchSettings, per_leader: int, limit: Side
    ) -> None:
        self._env = env
        self._limit = limit
        self._local_id = local_id
        self._peers = peers
        self._settings = settings
        self._per_leader = per_leader
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._placed: dict[Key, Fetcher] = {}
        self._stopped = False

    def stop(self) -> None:
        """Copy nothing any more: a leader would ask a follower that is about to stop into the in-sync set."""
        self._stopped = True
        for key, fetcher in self._placed.items():
            fetcher.leave(key)
        self._placed.clear()

    def follow(self, partition: Partition) -> None:
        """Copy it from its leader from now on, in its present epoch."""
        if self._stopped:
            return
        assert partition.follows
        assert partition.image is not None
        key = _key(partition)
        fetcher = self._fetcher(partition.image.leader, sum(key[0]) + key[1])
        if self._placed.get(key) is not fetcher:
            self.leave(partition)
            self._placed[key] = fetcher
        fetcher.follow(partition)

    def leave(self, partition: Partition) -> None:
        fetcher = self._placed.pop(_key(partition), None)
        if fetcher is not None:
            fetcher.leave(_key(partition))

    def stir(self, partition: Partition) -> None:
        fetcher = self._placed.get(_key(partition))
        if fetcher is not None:
            fetcher.stir(_key(partition))

    @property
    def doubted(self) -> set[int]:
        """Leaders that this broker follows and that are likely to be dead, though nobody has said so yet."""
        return {leader for (leader, _), fetcher in self._fetchers.items() if fetcher.doubts_leader}

    @property
    def busy(self) -> bool:
        """Whether this broker follows any leader."""
        return bool(self._placed)

    def _fetcher(self, leader: int, number: int) -> Fetcher:
        place = leader, number % self._per_leader
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            fetcher = Fetcher(self._env, self._local_id, leader, self._peers, self._settings, self._limit)
            self._fetchers[place] = fetcher
            self._env.background.run(f"Fetching from broker {leader}", fetcher.run())
        return fetcher


def _key(partition: Partition) -> Key:
    return partition.topic_id, partition.topic_partition.partition
