"""How a command logs in: a file with a client's settings, in the words of Kafka's clients or of librdkafka.

security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.username=alice                 or    sasl.jaas.config=...ScramLoginModule required username="alice" ...;
sasl.password=...
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from headrace.cli.common.failure import USAGE, CommandError
from headrace.cli.common.options import CLIENT_CONFIG, CLIENT_CONFIG_VARIABLE
from headrace.client.login import ClientLogin


def asked_login() -> ClientLogin | None:
    """By the command that runs; None if nothing was said."""
    context = click.get_current_context(silent=True)
    path = (context.meta.get(CLIENT_CONFIG) if context is not None else None) or os.environ.get(
        CLIENT_CONFIG_VARIABLE
    )
    return read_login(Path(path)) if path else None


def read_login(path: Path) -> ClientLogin | None:
    from headrace.config.properties import parse_properties  # only who logs in waits for these
    from headrace.config.setting import ConfigError

    try:
        settings = parse_properties(path.read_text(encoding="utf-8"))
        return login_of(settings)
    except OSError as error:
        raise CommandError(f"Cannot read {path}: {error.strerror}.", USAGE) from None
    except ConfigError as error:
        raise CommandError(f"{path}: {error}.", USAGE) from None


def login_of(settings: dict[str, str]) -> ClientLogin | None:
    from headrace.config.sasl_config import SERVED_MECHANISMS, parse_jaas
    from headrace.config.setting import ConfigError

    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return None
    if protocol != "SASL_PLAINTEXT":
        raise ConfigError(
            f"security.protocol={protocol} is not supported in this version; use PLAINTEXT or SASL_PLAINTEXT"
        )
    mechanism = (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").upper()
    if mechanism not in SERVED_MECHANISMS:
        raise ConfigError(f"sasl.mechanism is one of {', '.join(SERVED_MECHANISMS)}")
    user, password = settings.get("sasl.username"), settings.get("sasl.password")
    if text := settings.get("sasl.jaas.config"):
        options = parse_jaas("sasl.jaas.config", text, mechanism)
        user, password = options.get("username"), options.get("password")
    if not user or password is None:
        raise ConfigError("sasl.username and sasl.password are missing")
    return ClientLogin(mechanism, user, password, os.urandom)
