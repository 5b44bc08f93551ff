"""The rows of the table of broker settings that are about transactions."""

from __future__ import annotations

from headrace.config.setting import INT_MAX, ConfigType, Importance, Setting, UpdateMode

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
INT, SHORT, BOOLEAN = ConfigType.INT, ConfigType.SHORT, ConfigType.BOOLEAN

TRANSACTIONS: tuple[Setting, ...] = (
    Setting(
        "transaction.max.timeout.ms",
        INT,
        "900000",
        HIGH,
        "The longest timeout that a transactional producer may ask for.",
        1,
    ),
    Setting(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        HIGH,
        "How long a transactional id is remembered after its last transaction ended.",
        1,
    ),
    Setting(
        "transaction.state.log.num.partitions",
        INT,
        "50",
        HIGH,
        "Number of partitions of __transaction_state; do not change it once the topic exists.",
        1,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        SHORT,
        "3",
        HIGH,
        "Number of replicas of __transaction_state; fewer if there are fewer brokers.",
        1,
    ),
    Setting(
        "transaction.state.log.min.isr",
        INT,
        "2",
        HIGH,
        "How many replicas of __transaction_state must store a decision before it takes effect.",
        1,
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        INT,
        "104857600",
        HIGH,
        "The size of __transaction_state's segments, at least 1 MB: small ones are compacted and loaded sooner.",
        1,
    ),
    Setting(
        "transaction.state.log.load.buffer.size",
        INT,
        "5242880",
        HIGH,
        "How many bytes of __transaction_state are read at a time when a coordinator takes over.",
        1,
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        LOW,
        "How often the coordinator looks for transactions that are past their timeout, and aborts them.",
        1,
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        LOW,
        "How often the coordinator looks for transactional ids that have expired.",
        1,
    ),
    Setting(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        LOW,
        "Whether a partition asks the coordinator before it begins a transaction of an older client (KIP-890).",
        update_mode=UpdateMode.CLUSTER_WIDE,
    ),
    Setting(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        "true",
        LOW,
        "Whether clients may prepare transactions, which then stay open until they are ended by name (KIP-939).",
    ),
    Setting(
        "headrace.transaction.max.prepared",
        INT,
        "1000",
        MEDIUM,
        "Maximum prepared transactions that one broker coordinates; more are refused with POLICY_VIOLATION.",
        0,
        INT_MAX,
    ),
)
