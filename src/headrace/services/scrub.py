"""The scrub, an option: reads all logs repeatedly and slowly, and reports damage in them.

`headrace.scrub.bytes.per.second` is how fast, and 0 turns it off. Slices are verified in a thread, with pauses
between them. Nothing is changed: what to do about damage is for an operator, who may have a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.config.broker_config import BrokerConfig
from headrace.env import Env
from headrace.metrics.exposition import Family, counter, gauge
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.storage.log import Log
from headrace.storage.log_directories import LogDirectories
from headrace.storage.log_directory import LogDirectory
from headrace.storage.scrubbing import begin_check
from headrace.storage.segment import LOG, Segment

log = logging.getLogger(__name__)

SHORTEST_PAUSE_SECONDS = 1.0
"""Between two rounds, also where there is next to nothing to read."""


@dataclass(slots=True)
class ScrubTotals:
    """What has been done since the start."""

    rounds: int = 0
    segments: int = 0
    bytes: int = 0


class Scrub:
    def __init__(self, env: Env, config: BrokerConfig, directories: LogDirectories) -> None:
        self._env = env
        self._directories = directories
        self._bytes_per_second = config.integer("headrace.scrub.bytes.per.second")
        self._interval_seconds = config.integer("headrace.scrub.interval.ms") / 1000
        self.damaged: dict[tuple[TopicPartition, int], str] = {}
        """What the last round found, or this one did again: by partition and base offset of the segment."""
        self.totals = ScrubTotals()

    async def run(self) -> None:
        """Until cancelled; returns at once if the scrub is off."""
        while self._bytes_per_second:
            began = self._env.clock.monotonic()
            await self._round()
            rest = self._interval_seconds - (self._env.clock.monotonic() - began)
            await self._env.clock.sleep(max(rest, SHORTEST_PAUSE_SECONDS))

    async def _round(self) -> None:
        before, began = self.totals.bytes, self._env.clock.monotonic()
        seen: dict[tuple[TopicPartition, int], str] = {}
        for directory in self._directories.online:
            for held in list(directory.logs.values()):
                await self._scrub_log(directory, held, seen)
        self.damaged = seen
        self.totals.rounds += 1
        log.info(
            "The scrub read %d MB of logs in %.0f s: %d segments are damaged",
            (self.totals.bytes - before) // 2**20,
            self._env.clock.monotonic() - began,
            len(seen),
        )

    async def _scrub_log(
        self, directory: LogDirectory, held: Log, seen: dict[tuple[TopicPartition, int], str]
    ) -> None:
        for segment in held.segments:
            if held.abandoned or directory.failure is not None:
                return
            try:
                damage = await self._scrub_segment(directory, held, segment)
                if damage is not None:
                    # It may have been cut meanwhile: what is damaged is so the second time too.
                    damage = await self._scrub_segment(directory, held, segment)
            except KafkaError as error:
                damage = str(error)
            except OSError as error:
                directory.judge(error)
                damage = f"it cannot be read: {error}"
            if damage is not None and self._is_still_there(held, segment):
                seen[held.partition, segment.base_offset] = damage
                self.damaged = {**self.damaged, **seen}
                self._report(segment, damage)

    async def _scrub_segment(self, directory: LogDirectory, held: Log, segment: Segment) -> str | None:
        check = await self._env.run_blocking(lambda: begin_check(held, segment, directory.resources))
        if check is None:
            return None
        damage = None
        while not check.is_done:
            size, damage = await self._env.run_blocking(check.step)
            self.totals.bytes += size
            await self._env.clock.sleep(size / self._bytes_per_second)
        self.totals.segments += 1
        return damage

    def _is_still_there(self, held: Log, segment: Segment) -> bool:
        """Not deleted, compacted or moved meanwhile."""
        return not held.abandoned and segment in held.segments

    def _report(self, segment: Segment, damage: str) -> None:
        log.error(
            "The scrub found damage in %s: %s. It is still served; clients that verify checksums refuse it. "
            "Put a copy of the file in its place while the broker is stopped, or delete the records up to its end",
            segment.path(LOG),
            damage,
        )

    def families(self) -> Iterator[Family]:
        totals = self.totals
        yield counter("headrace_scrub_bytes_total", "Bytes verified by the scrub.", totals.bytes)
        yield counter("headrace_scrub_segments_total", "Segments verified by the scrub.", totals.segments)
        yield counter("headrace_scrub_rounds_total", "Scrubs of all logs.", totals.rounds)
        yield gauge("headrace_scrub_damaged_segments", "Damaged segments.", len(self.damaged))
