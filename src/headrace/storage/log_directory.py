"""One data directory of a broker: its lock, its identity, its checkpoints, and the logs in it (architecture D12).

    .lock                                held while a process uses the directory
    meta.properties                      version, cluster.id, node.id, directory.id, headrace.format
    .kafka_cleanshutdown                 written last at a clean stop, removed at start; holds the boot id
    .headrace_running                    written at start; holds the boot id
    recovery-point-offset-checkpoint     and the other checkpoints of `checkpoints`
    topic-N/                             a log; topic-N.<unique>-delete is one on its way out, and
                                         topic-N.<unique>-stray or -moved one that was set aside (`strays`)

Opening, loading, flushing, checkpointing and closing block: they belong at start, at stop, or in a thread.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

from headrace.env import Disk, Env
from headrace.env.env import EntryKind
from headrace.model.errors import KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicId, TopicPartition, topic_id_text
from headrace.storage.checkpoints import HIGH_WATERMARKS, OF_A_DIRECTORY, PARTITION_METADATA, read_topic_id
from headrace.storage.directory_checkpoints import DirectoryCheckpoints
from headrace.storage.files import read_file, write_atomically
from headrace.storage.identity import (
    DirectoryRefused,
    Identity,
    check_identity,
    read_identity,
    write_identity,
)
from headrace.storage.load_hints import LastStop
from headrace.storage.loading import PROGRESS_SECONDS, create_log, load_log
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.resources import StorageResources
from headrace.storage.strays import MOVED, STRAY

logger = logging.getLogger(__name__)

LOCK = ".lock"
CLEAN_STOP = ".kafka_cleanshutdown"
RUNNING = ".headrace_running"
_DELETE_SUFFIX = "-delete"
_MAX_FILE_NAME = 255
_DELETED_NAME = re.compile(r".+\.[0-9a-f]{32}-delete")
_LOG_NAME = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]*)")

ConfigOf = Callable[[TopicPartition, TopicId], LogConfig]


class LogDirectory:
    __slots__ = (
        "_checkpoints",
        "_lock",
        "_power_lost",
        "_resources",
        "clean_stop",
        "cluster_id",
        "directory_id",
        "logs",
        "may_have_lost",
        "path",
        "same_boot",
        "shorter",
    )

    def __init__(self, env: Env, path: str) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.cluster_id = ""
        self.directory_id = ""
        self.clean_stop = False
        """Whether the last process that used the directory stopped cleanly (or the directory is new)."""
        self.same_boot = False
        """Whether that was in the same boot of the kernel: then nothing was lost with the page cache."""
        self._power_lost = False
        self.may_have_lost = False
        """Whether confirmed records of any log may be lost: after a reboot without a clean stop."""
        self.shorter: set[TopicPartition] = set()
        """Logs that were longer before, until the cluster knows."""
        self._lock: int | None = None
        self._resources = StorageResources.create(env, path)
        self._checkpoints = DirectoryCheckpoints(env.disk, path)

    @property
    def resources(self) -> StorageResources:
        return self._resources

    @property
    def failure(self) -> OSError | None:
        """Why the directory is offline; None while it is in use."""
        return self._resources.health.failure

    @property
    def is_full(self) -> bool:
        """Whether there was no space for a write since `has_room_again`."""
        return self._resources.health.is_full

    def has_room_again(self) -> None:
        self._resources.health.is_full = False

    def fail(self, error: OSError) -> None:
        """Stop using the directory until the process starts again."""
        self._resources.health.fail(error)

    def judge(self, error: OSError) -> None:
        """Handle an error in the directory: a full disk is only noted, anything else takes it offline."""
        self._resources.health.judge(error)

    @property
    def _disk(self) -> Disk:
        return self._resources.env.disk

    def open(self, cluster_id: str, node_id: int) -> None:
        """Lock the directory for this process, or raise DirectoryRefused. Loads nothing yet."""
        self._disk.make_directory(self.path)
        self._lock = self._disk.lock(f"{self.path}/{LOCK}")
        if self._lock is None:
            raise DirectoryRefused(
                f"The data directory {self.path} is in use by another process. "
                "Stop that one, or give this broker its own log.dirs."
            )
        try:
            self._check_identity(cluster_id, node_id)
        except DirectoryRefused:
            self._unlock()
            raise
        self._read_markers()

    def load(self, config_of: ConfigOf) -> None:
        """Load every log, scanning only what a crash left unverified, and mark the directory as running."""
        disk, began = self._disk, self._resources.env.clock.monotonic()
        kinds = disk.list_entries(self.path)
        self._set_aside_what_is_no_file(kinds, OF_A_DIRECTORY)
        has_logs = any(_LOG_NAME.fullmatch(name) for name in kinds)
        self._checkpoints.read(has_logs, self.clean_stop)
        entries, told = sorted(kinds.items(), key=itemgetter(0)), began
        for number, (name, kind) in enumerate(entries):
            if (now := self._resources.env.clock.monotonic()) - told >= PROGRESS_SECONDS:
                told = now
                logger.info("%s: opened %d of %d logs", self.path, number, len(entries))
            if name.endswith((STRAY, MOVED)):
                self._resources.strays.add(f"{self.path}/{name}")
            elif kind is EntryKind.DIRECTORY and _DELETED_NAME.fullmatch(name):
                disk.remove_tree(f"{self.path}/{name}")
            elif match := _LOG_NAME.fullmatch(name):
                if kind is EntryKind.DIRECTORY:
                    self._load(TopicPartition(match[1], int(match[2])), config_of)
                else:
                    why = "this has the name of a log, and is not a directory"
                    self._resources.strays.set_aside(f"{self.path}/{name}", why)
        if not self.clean_stop:
            logger.info(
                "%s was not stopped cleanly: recovered %d logs in %.3f s",
                self.path,
                len(self.logs),
                self._resources.env.clock.monotonic() - began,
            )
        self._mark_running()

    def _load(self, partition: TopicPartition, config_of: ConfigOf) -> None:
        directory = f"{self.path}/{partition}"
        found = read_topic_id(self._disk, f"{directory}/{PARTITION_METADATA}")
        topic_id = self._checkpoints.topic_id(partition) if found is None else found
        stop = LastStop(self.clean_stop, self.same_boot, self._power_lost)
        hints = self._checkpoints.hints(partition, topic_id, stop)
        config = config_of(partition, topic_id)
        log = load_log(directory, partition, topic_id, config, self._resources, hints)
        if log.end_offset < hints.known_end:
            # A truncation behind a leader may be the reason, or a new copy: it has to catch up once more.
            self.shorter.add(partition)
            logger.warning(
                "%s ends at offset %d, and had reached %d: records may be lost",
                *(directory, log.end_offset, hints.known_end),
            )
        self.logs[partition] = log

    def known_end(self, partition: TopicPartition, topic_id: TopicId) -> int:
        """The end that the log of a topic had at the last checkpoint; 0 if it was not here."""
        is_known = topic_id != NO_TOPIC_ID and self._checkpoints.topic_id(partition) == topic_id
        stop = LastStop(clean=False, same_boot=False, power_lost=self._power_lost)
        return self._checkpoints.hints(partition, topic_id, stop).known_end if is_known else 0

    def create_log(
        self, partition: TopicPartition, topic_id: TopicId, config: LogConfig, start_offset: int = 0
    ) -> Log:
        assert partition not in self.logs
        log = create_log(f"{self.path}/{partition}", partition, topic_id, config, self._resources, start_offset)
        self.logs[partition] = log
        return log

    def delete_log(self, partition: TopicPartition) -> None:
        """Delete a log at once; its files are removed after `file.delete.delay.ms`, or at the next start."""
        log = self.logs.pop(partition)
        log.abandon()
        unique = self._resources.env.rng.bytes(16).hex()
        suffix = f"-{partition.partition}.{unique}{_DELETE_SUFFIX}"
        doomed = f"{self.path}/{partition.topic[: _MAX_FILE_NAME - len(suffix)]}{suffix}"
        self._disk.rename(log.directory, doomed)
        self._resources.graveyard.add_directory(doomed, log.config.file_delete_delay_ms)

    def set_log_aside(self, partition: TopicPartition, why: str) -> None:
        """Remove a log; its files are kept for some time under a name that says so."""
        log = self.logs.pop(partition)
        log.abandon()
        self._resources.strays.set_aside(log.directory, why, partition.partition)

    def set_moved_aside(self, partition: TopicPartition) -> None:
        """Like `set_log_aside`, for a partition that other brokers hold now."""
        log = self.logs.pop(partition)
        log.abandon()
        self._resources.strays.set_moved_aside(log.directory, partition.partition)

    def take_removable(self) -> Callable[[], None] | None:
        """Work for a thread: remove what was deleted long enough ago. None if there is nothing."""
        graveyard = self._resources.graveyard
        due = graveyard.take_due()
        return (lambda: graveyard.remove(due)) if due else None

    def flush_rolled(self) -> None:
        """Sync the segments that were closed since the last call, so that recovery need not scan them."""
        for partition, log in list(self.logs.items()):
            if self.logs.get(partition) is log:
                log.flush(log.active_base_offset)

    def checkpoint(self) -> None:
        """Write down where recovery must begin after a crash, and where each log starts. Blocking."""
        self._checkpoints.write(self.logs)

    def write_dirty_offsets(self) -> None:
        """Write down where each log that was ever compacted is dirty from, if that is not done yet. Blocking."""
        self._checkpoints.write_dirty_offsets(self.logs)

    def away_ms(self) -> int:
        """How long ago the high watermarks were last written; 0 if they never were. Blocking."""
        path = f"{self.path}/{HIGH_WATERMARKS}"
        if not self._disk.exists(path):
            return 0
        return max(self._resources.env.clock.wall_ms() - self._disk.modified_ms(path), 0)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks. Blocking."""
        self._checkpoints.write_high_watermarks(offsets, self.logs)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return self._checkpoints.read_high_watermarks(self.logs)

    def close(self, clean: bool = True) -> None:
        """Stop using the directory. A clean close leaves nothing for the next start to scan."""
        try:
            if clean and self.failure is None:
                if self.shorter:  # the checkpoints that are written now do not show it any more
                    self.may_have_lost = True
                    self._write_marker(RUNNING)
                self._close_logs()
        except (OSError, KafkaError) as error:
            logger.error("%s could not be closed cleanly; the next start recovers it: %s", self.path, error)
        self._checkpoints.close()
        for log in self.logs.values():
            log.abandon()
        self.logs = {}
        self._unlock()

    def _close_logs(self) -> None:
        for log in self.logs.values():
            log.save_state(final=True)
        assert self._lock is not None
        # With ten thousand logs one sync of the whole volume takes seconds, and one for every file a minute.
        if self._disk.sync_volume(self._lock):
            for log in self.logs.values():
                log.mark_synced()
        for log in self.logs.values():
            log.close()
        self.checkpoint()
        self._write_marker(CLEAN_STOP)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._disk.close(self._lock)
            self._lock = None

    # Identity and markers

    def _check_identity(self, cluster_id: str, node_id: int) -> None:
        identity = read_identity(self._disk, self.path)
        if identity is None:
            self.directory_id = topic_id_text(TopicId(self._resources.env.rng.bytes(16)))
            write_identity(self._disk, self.path, Identity(cluster_id, str(node_id), self.directory_id))
        else:
            check_identity(self.path, identity, cluster_id, node_id)
            self.directory_id = identity.directory_id
        self.cluster_id = cluster_id

    def _read_markers(self) -> None:
        odd = self._set_aside_what_is_no_file(self._disk.list_entries(self.path), (CLEAN_STOP, RUNNING))
        clean = self._marker(CLEAN_STOP)
        running = "" if RUNNING in odd else self._marker(RUNNING)
        self.clean_stop = clean is not None or running is None
        boot_id = self._disk.boot_id()
        self.same_boot = boot_id in (clean, running)
        self._power_lost = self._was_suspect() or not (self.clean_stop or self.same_boot)
        self.may_have_lost = self._power_lost

    def _set_aside_what_is_no_file(self, kinds: Mapping[str, EntryKind], names: Iterable[str]) -> list[str]:
        """Set aside the entries with these names that are not files; returns their names."""
        odd = [name for name in names if kinds.get(name, EntryKind.FILE) is not EntryKind.FILE]
        for name in odd:
            self._resources.strays.set_aside(f"{self.path}/{name}", "this is not a file")
        return odd

    def _marker(self, name: str) -> str | None:
        """The boot id in a marker ("" if it names none); None if there is no marker."""
        try:
            data = json.loads(read_file(self._disk, f"{self.path}/{name}"))
        except FileNotFoundError:
            return None
        except ValueError:
            # Incomplete after a crash, so it counts as missing.
            return "" if name == RUNNING else None
        return str(data.get("bootId", "")) if isinstance(data, dict) else ""

    def _was_suspect(self) -> bool:
        """Whether an earlier process found that records may be lost, and nobody has acted on it yet."""
        try:
            data = json.loads(read_file(self._disk, f"{self.path}/{RUNNING}"))
        except (FileNotFoundError, ValueError):
            return False
        return isinstance(data, dict) and bool(data.get("mayHaveLost"))

    def trust(self) -> None:
        """Note that the cluster knows that records may be lost: the next start need not report it. Blocking."""
        self.shorter.clear()
        if self.may_have_lost:
            self.may_have_lost = False
            self._write_marker(RUNNING)

    def _write_marker(self, name: str) -> None:
        content = {
            "version": 0,
            "brokerEpoch": -1,
            "bootId": self._disk.boot_id(),
            "mayHaveLost": self.may_have_lost,
        }
        write_atomically(self._disk, f"{self.path}/{name}", json.dumps(content).encode())

    def _mark_running(self) -> None:
        """Mark the directory as in use: from now on a stop is unclean until `close` marks it as clean."""
        self._write_marker(RUNNING)
        if self._disk.exists(f"{self.path}/{CLEAN_STOP}"):
            self._disk.unlink(f"{self.path}/{CLEAN_STOP}")
            self._disk.fsync_directory(self.path)
