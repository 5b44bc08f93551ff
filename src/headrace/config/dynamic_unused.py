"""Broker settings that Kafka can change while it runs and that mean nothing here: kept and shown, no more."""

from __future__ import annotations

from headrace.config.known_unused import class_problem
from headrace.config.setting import ConfigError, ConfigType, Importance, Setting, UpdateMode

_EFFECT = "A setting of Kafka's; it is kept and shown, and has no effect here."
_LISTENER = "listener.name."

_CLUSTER_WIDE = (
    ("background.threads", ConfigType.INT),
    ("log.cleaner.io.buffer.load.factor", ConfigType.DOUBLE),
    ("log.cleaner.io.buffer.size", ConfigType.INT),
    ("max.connections.per.ip.overrides", ConfigType.STRING),
    ("metric.reporters", ConfigType.LIST),
    ("num.io.threads", ConfigType.INT),
    ("num.network.threads", ConfigType.INT),
    ("num.recovery.threads.per.data.dir", ConfigType.INT),
    ("remote.fetch.max.wait.ms", ConfigType.INT),
    ("remote.list.offsets.request.timeout.ms", ConfigType.LONG),
    ("remote.log.index.file.cache.total.size.bytes", ConfigType.LONG),
    ("remote.log.manager.copier.thread.pool.size", ConfigType.INT),
    ("remote.log.manager.copy.max.bytes.per.second", ConfigType.LONG),
    ("remote.log.manager.expiration.thread.pool.size", ConfigType.INT),
    ("remote.log.manager.fetch.max.bytes.per.second", ConfigType.LONG),
    ("remote.log.manager.follower.thread.pool.size", ConfigType.INT),
    ("remote.log.reader.threads", ConfigType.INT),
    ("replica.alter.log.dirs.io.max.bytes.per.second", ConfigType.LONG),
)

_PER_BROKER = (
    ("principal.builder.class", ConfigType.CLASS),
    ("sasl.kerberos.kinit.cmd", ConfigType.STRING),
    ("sasl.kerberos.min.time.before.relogin", ConfigType.LONG),
    ("sasl.kerberos.principal.to.local.rules", ConfigType.LIST),
    ("sasl.kerberos.service.name", ConfigType.STRING),
    ("sasl.kerberos.ticket.renew.jitter", ConfigType.DOUBLE),
    ("sasl.kerberos.ticket.renew.window.factor", ConfigType.DOUBLE),
    ("sasl.login.refresh.buffer.seconds", ConfigType.SHORT),
    ("sasl.login.refresh.min.period.seconds", ConfigType.SHORT),
    ("sasl.login.refresh.window.factor", ConfigType.DOUBLE),
    ("sasl.login.refresh.window.jitter", ConfigType.DOUBLE),
    ("ssl.engine.factory.class", ConfigType.CLASS),
    ("ssl.keymanager.algorithm", ConfigType.STRING),
    ("ssl.provider", ConfigType.STRING),
    ("ssl.secure.random.implementation", ConfigType.STRING),
    ("ssl.trustmanager.algorithm", ConfigType.STRING),
)

DYNAMIC_UNUSED: dict[str, Setting] = {
    name: Setting(name, type, None, Importance.LOW, _EFFECT, update_mode=mode)
    for rows, mode in ((_CLUSTER_WIDE, UpdateMode.CLUSTER_WIDE), (_PER_BROKER, UpdateMode.PER_BROKER))
    for name, type in rows
}


def unused_setting(name: str) -> Setting | None:
    """The row for a name, which may be that of a listener's own (`listener.name.internal.num.network.threads`)."""
    if not name.startswith(_LISTENER):
        return DYNAMIC_UNUSED.get(name)
    plain = DYNAMIC_UNUSED.get(name[len(_LISTENER) :].partition(".")[2])
    return plain and plain._replace(name=name, update_mode=UpdateMode.PER_BROKER)


def check_unused(setting: Setting, text: str) -> None:
    """Raise ConfigError for a value that Kafka would not take, or for a class that must not be ignored."""
    setting.parse(text)
    if (problem := class_problem(setting.name, text)) is not None:
        raise ConfigError(f"Invalid value '{text}' for configuration {setting.name}: {problem}.")
