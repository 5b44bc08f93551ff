"""The table of broker settings that Headrace honours: Kafka's names, types, limits and defaults.

Where a default differs from Kafka's, the row says so and docs/choices.md gives the reason.
Settings of our own begin with `headrace.`.
"""

from __future__ import annotations

from headrace.config.admin_settings import ADMIN
from headrace.config.cleaner_settings import COMPACTION
from headrace.config.coordination_settings import COORDINATION
from headrace.config.group_settings import CONSUMER_GROUPS
from headrace.config.moving_settings import MOVING
from headrace.config.naming_settings import NAMING
from headrace.config.quota_settings import QUOTAS
from headrace.config.security_settings import SECURITY_SETTINGS, TLS_SETTINGS
from headrace.config.setting import INT_MAX, LONG_MAX, ConfigType, Importance, Setting, UpdateMode
from headrace.config.storage_settings import DATA_SAFETY
from headrace.config.transaction_settings import TRANSACTIONS

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
INT, LONG, STRING, BOOLEAN = ConfigType.INT, ConfigType.LONG, ConfigType.STRING, ConfigType.BOOLEAN
LIST = ConfigType.LIST
_DYNAMIC = UpdateMode.CLUSTER_WIDE


def _not_zero(text: str) -> str | None:
    return "it must be -1 (no limit) or at least 1" if text == "0" else None


_NETWORK: tuple[Setting, ...] = (
    Setting(
        "listeners",
        LIST,
        "PLAINTEXT://127.0.0.1:9092",
        HIGH,
        "The addresses to listen on, as name://host:port separated by commas; an empty host means every "
        "interface, port 0 any free port.",
    ),
    Setting(
        "advertised.listeners",
        LIST,
        None,
        HIGH,
        "Addresses that clients connect to, if they differ from listeners.",
    ),
    Setting(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        LOW,
        "Security protocol of each listener name, as name:protocol separated by commas.",
    ),
    Setting(
        "inter.broker.listener.name",
        STRING,
        None,
        MEDIUM,
        "The listener for traffic between brokers; the first one if it is not set.",
    ),
    Setting(
        "connections.max.idle.ms",
        LONG,
        "600000",
        MEDIUM,
        "How long a connection may be idle before it is closed; a negative value never closes it.",
    ),
    Setting(
        "max.connections",
        INT,
        "10000",
        MEDIUM,
        "Maximum number of connections. Kafka's default is no limit.",
        minimum=0,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "max.connections.per.ip",
        INT,
        str(INT_MAX),
        MEDIUM,
        "Maximum number of connections from one client address.",
        minimum=0,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "socket.request.max.bytes",
        INT,
        "104857600",
        HIGH,
        "Maximum size of a request; a larger one closes its connection.",
        minimum=1,
    ),
    Setting(
        "queued.max.request.bytes",
        LONG,
        "536870912",
        MEDIUM,
        "Bytes of large requests that may be held in memory while they arrive; more wait in their sockets. Small "
        "ones may use another quarter of this. -1 is no limit, which is Kafka's default.",
        minimum=-1,
    ),
    Setting(
        "socket.listen.backlog.size",
        INT,
        "1024",
        MEDIUM,
        "How many connections may wait to be accepted. Kafka's default is 50.",
        minimum=1,
    ),
    Setting(
        "socket.send.buffer.bytes",
        INT,
        "204800",
        HIGH,
        "The kernel's send buffer of a connection; -1 leaves it to the kernel. Kafka's default is 102400.",
        minimum=-1,
    ),
    Setting(
        "socket.receive.buffer.bytes",
        INT,
        "-1",
        HIGH,
        "The kernel's receive buffer of a connection; -1 leaves it to the kernel, which adapts it. Kafka's "
        "default is 102400.",
        minimum=-1,
    ),
    Setting(
        "fetch.max.bytes",
        INT,
        "57671680",
        MEDIUM,
        "Maximum size of a Fetch response, whatever the client asks for.",
        minimum=1024,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        MEDIUM,
        "Maximum number of incremental fetch sessions.",
        minimum=0,
    ),
    Setting(
        "headrace.allow.insecure",
        BOOLEAN,
        "false",
        HIGH,
        "Allows a listener that is open to the network without authentication.",
    ),
)

_IDENTITY: tuple[Setting, ...] = (
    Setting(
        "node.id", INT, None, HIGH, "This broker's number in the cluster; 1 if neither it nor broker.id is set.", 0
    ),
    Setting("broker.id", INT, "-1", HIGH, "The older name of node.id, used when node.id is not set."),
    Setting(
        "broker.rack",
        STRING,
        None,
        MEDIUM,
        "Rack of this broker; replicas are spread over racks, and clients can read from their own rack.",
    ),
    Setting(
        "log.dir",
        LIST,
        "data",
        HIGH,
        "The data directory, used when log.dirs is not set.",
    ),
    Setting("log.dirs", LIST, None, HIGH, "The data directories, separated by commas."),
)

_TOPICS: tuple[Setting, ...] = (
    Setting(
        "auto.create.topics.enable",
        BOOLEAN,
        "false",
        HIGH,
        "Whether a topic is created when a client first asks for it.",
    ),
    Setting("default.replication.factor", INT, "1", MEDIUM, "Default number of replicas for new topics."),
    Setting("delete.topic.enable", BOOLEAN, "true", HIGH, "Whether topics can be deleted by clients."),
    Setting("num.partitions", INT, "1", MEDIUM, "Default number of partitions for new topics.", 1),
    Setting(
        "min.insync.replicas",
        INT,
        "1",
        HIGH,
        "How many replicas must be in sync for a write with acks=all to be accepted.",
        1,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        HIGH,
        "Whether a replica that is not in sync may become leader when no other is left, losing records.",
        update_mode=_DYNAMIC,
    ),
    Setting(
        "num.replica.fetchers",
        INT,
        "1",
        HIGH,
        "Number of connections to each other broker for replication.",
        1,
    ),
    Setting(
        "replica.fetch.min.bytes",
        INT,
        "1",
        HIGH,
        "Bytes that a leader collects before it answers a follower, within replica.fetch.wait.max.ms.",
        0,
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        INT,
        "500",
        HIGH,
        "How long a leader holds the request of a follower when there is nothing new.",
        1,
    ),
    Setting(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        MEDIUM,
        "Bytes of one partition that a follower asks for at once; a larger first batch is sent whole.",
        0,
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        MEDIUM,
        "Bytes of all partitions that a follower asks for at once.",
        0,
    ),
    Setting(
        "replica.fetch.backoff.ms",
        INT,
        "1000",
        MEDIUM,
        "Maximum wait before a follower retries a partition that it could not copy.",
        0,
    ),
    Setting(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        HIGH,
        "A follower that has not caught up for this long leaves the in-sync set.",
        1,
    ),
    Setting(
        "headrace.replica.lag.max.messages",
        LONG,
        "-1",
        MEDIUM,
        "A follower that is more records behind than this leaves the in-sync set; -1: only time counts.",
        -1,
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        HIGH,
        "How often high watermarks are written to disk.",
        1,
    ),
)

_REQUESTS: tuple[Setting, ...] = (
    Setting(
        "message.max.bytes",
        INT,
        "1048588",
        HIGH,
        "The largest record batch that is accepted, measured as it arrives, so after compression.",
        0,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        LOW,
        "How long a partition remembers an idempotent producer that no longer writes to it.",
        1,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        LOW,
        "How often expired producers are removed.",
        1,
    ),
    Setting(
        "compression.type",
        STRING,
        "producer",
        HIGH,
        "The codec in which batches are stored; producer keeps them as they were sent, any other recompresses.",
        allowed=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        update_mode=_DYNAMIC,
    ),
    Setting(
        "compression.gzip.level",
        INT,
        "-1",
        MEDIUM,
        "The gzip level where the broker compresses; -1 is gzip's own default.",
        -1,
        9,
        update_mode=_DYNAMIC,
        check=lambda text: "it must be -1 or from 1 to 9" if text == "0" else None,
    ),
    Setting(
        "compression.lz4.level",
        INT,
        "9",
        MEDIUM,
        "The lz4 level where the broker compresses.",
        1,
        17,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "compression.zstd.level",
        INT,
        "3",
        MEDIUM,
        "The zstd level where the broker compresses.",
        -131072,
        22,
        update_mode=_DYNAMIC,
    ),
)

_LOG: tuple[Setting, ...] = (
    Setting(
        "log.cleanup.policy",
        LIST,
        "delete",
        MEDIUM,
        "What happens to old segments: delete, compact, or both.",
        allowed=("compact", "delete"),
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.flush.interval.messages",
        LONG,
        str(LONG_MAX),
        HIGH,
        "After how many records a log is forced to disk; 1 forces every batch before it is acknowledged.",
        1,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.flush.interval.ms",
        LONG,
        None,
        HIGH,
        "Maximum time a record may stay in the page cache only; if not set, the scheduler's interval.",
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.flush.scheduler.interval.ms",
        LONG,
        str(LONG_MAX),
        HIGH,
        "How often logs are checked for records that must be forced to disk.",
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        "60000",
        HIGH,
        "How often the recovery point is written: a restart after a crash reads each log from there.",
        0,
    ),
    Setting(
        "log.index.interval.bytes",
        INT,
        "4096",
        MEDIUM,
        "Approximate bytes of log between two entries of the offset index.",
        0,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.index.size.max.bytes",
        INT,
        "10485760",
        MEDIUM,
        "The largest size of a segment's index files; a full index begins a new segment.",
        4,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.local.retention.bytes",
        LONG,
        "-2",
        MEDIUM,
        "The size kept locally under tiered storage.",
        -2,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.local.retention.ms",
        LONG,
        "-2",
        MEDIUM,
        "The time kept locally under tiered storage.",
        -2,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.message.timestamp.after.max.ms",
        LONG,
        "3600000",
        MEDIUM,
        "How far a record's own timestamp may be ahead of the broker's clock before the record is refused.",
        0,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.message.timestamp.before.max.ms",
        LONG,
        str(LONG_MAX),
        MEDIUM,
        "How far a record's own timestamp may be behind the broker's clock before the record is refused.",
        0,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "headrace.record.validation.enable",
        BOOLEAN,
        "false",
        MEDIUM,
        "Whether every record is validated before its batch is accepted; default for topics.",
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        MEDIUM,
        "Which clock sets timestamps: the producer's (CreateTime) or the broker's at append (LogAppendTime).",
        allowed=("CreateTime", "LogAppendTime"),
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.preallocate",
        BOOLEAN,
        "false",
        MEDIUM,
        "Whether a new segment file is preallocated at its full size.",
        update_mode=_DYNAMIC,
    ),
)

_RETENTION: tuple[Setting, ...] = (
    Setting(
        "log.retention.bytes",
        LONG,
        "-1",
        HIGH,
        "The size of a partition above which its oldest segments are deleted; -1 is no limit.",
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.retention.check.interval.ms",
        LONG,
        "300000",
        MEDIUM,
        "How often logs are checked for segments to delete.",
        1,
    ),
    Setting(
        "log.retention.hours",
        INT,
        "168",
        HIGH,
        "The age in hours after which a segment is deleted; -1 is no limit.",
        -1,
        check=_not_zero,
    ),
    Setting(
        "log.retention.minutes",
        INT,
        None,
        HIGH,
        "The same in minutes; overrides log.retention.hours.",
        -1,
        check=_not_zero,
    ),
    Setting(
        "log.retention.ms",
        LONG,
        None,
        HIGH,
        "The same in milliseconds; overrides log.retention.minutes and log.retention.hours.",
        -1,
        update_mode=_DYNAMIC,
        check=_not_zero,
    ),
    Setting("log.roll.hours", INT, "168", HIGH, "Age in hours at which a segment is rolled.", 1),
    Setting(
        "log.roll.ms",
        LONG,
        None,
        HIGH,
        "Age in milliseconds at which a segment is rolled; overrides log.roll.hours.",
        1,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.roll.jitter.hours",
        INT,
        "0",
        HIGH,
        "Maximum random jitter, in hours, subtracted from the segment's roll age.",
        0,
    ),
    Setting(
        "log.roll.jitter.ms",
        LONG,
        None,
        HIGH,
        "The same in milliseconds; overrides log.roll.jitter.hours.",
        0,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.segment.bytes",
        INT,
        "1073741824",
        HIGH,
        "Size at which a segment is rolled.",
        1048576,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.segment.delete.delay.ms",
        LONG,
        "60000",
        HIGH,
        "How long the files of a deleted segment are kept, renamed, before they are removed.",
        0,
        update_mode=_DYNAMIC,
    ),
)

GROUPS: dict[str, tuple[Setting, ...]] = {
    "Network": _NETWORK,
    "Security": SECURITY_SETTINGS,
    "TLS": TLS_SETTINGS,
    "Quotas": QUOTAS,
    "Admin port": ADMIN,
    "Identity and data directories": _IDENTITY,
    "Coordination": COORDINATION,
    "Leaders and moving partitions": MOVING,
    "Topics": _TOPICS,
    "Requests, producers and compression": _REQUESTS,
    "Log": _LOG,
    "Retention and segments": _RETENTION,
    "Safety of the data": DATA_SAFETY,
    "Compaction": COMPACTION,
    "Consumer groups": CONSUMER_GROUPS,
    "Transactions": TRANSACTIONS,
    "Names": NAMING,
}
"""The table by chapter, as the reference page shows it."""

BROKER_SETTINGS: dict[str, Setting] = {row.name: row for rows in GROUPS.values() for row in rows}
