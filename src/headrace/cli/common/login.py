"""How a command logs in: a file with client settings, with the names of Kafka's clients or of librdkafka.

`client.security` lists what it may contain.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.common.failure import USAGE, CommandError, cannot_read
from headrace.cli.common.options import CLIENT_CONFIG, CLIENT_CONFIG_VARIABLE
from headrace.cli.common.output import warn

if TYPE_CHECKING:
    from headrace.client.connection import ClientSettings
    from headrace.client.security import ClientSecurity


def secured(settings: ClientSettings) -> ClientSettings:
    """Use the login and TLS settings of the current command."""
    security = asked_security()
    if security is None:
        return settings
    return replace(settings, login=security.login, tls=security.context)


def asked_security() -> ClientSecurity | None:
    """The security settings of the current command; None if it was given none."""
    path = asked_file()
    return read_security(path) if path else None


def asked_file() -> Path | None:
    """The file with client settings that the command was given."""
    context = click.get_current_context(silent=True)
    path = (context.meta.get(CLIENT_CONFIG) if context is not None else None) or os.environ.get(
        CLIENT_CONFIG_VARIABLE
    )
    return Path(path) if path else None


def asked_settings() -> dict[str, str]:
    """The settings in that file, checked, for code that passes them on."""
    from headrace.config.properties import parse_properties

    path = asked_file()
    if path is None:
        return {}
    read_security(path)
    return dict(parse_properties(path.read_text(encoding="utf-8")))


def read_security(path: Path) -> ClientSecurity:
    from headrace.client.security import client_security, misspelt_options  # imported only when there is a login
    from headrace.config.properties import parse_properties
    from headrace.config.setting import ConfigError
    from headrace.model.tls import TlsFault

    given: dict[str, str] = {}
    try:
        given = parse_properties(path.read_text(encoding="utf-8"))
        for name, meant in misspelt_options(given):
            warn(f"{path}: {name} is not used; did you mean {meant}?")
        security = client_security(given.get, os.urandom)
        if security.context is not None:
            security.context()  # report a missing file before anything is sent
    except TlsFault as error:
        named = "ssl.ca.location" if given.get("ssl.ca.location") else "ssl.truststore.location"
        raise CommandError(f"{path}: {str(error).replace('ssl.truststore.location', named)}.", USAGE) from None
    except OSError as error:
        raise cannot_read(path, error) from None
    except UnicodeDecodeError:
        raise CommandError(f"Cannot read {path}: it is not UTF-8 text.") from None
    except ConfigError as error:
        raise CommandError(f"{path}: {error}.", USAGE) from None
    return security
