"""How a connector connects to a secured cluster: `client:` of its file, in the words of Kafka's clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.connection import ClientSettings
from headrace.config.setting import ConfigError
from headrace.connect.options import ConfigProblems
from headrace.model.tls import TlsFault

if TYPE_CHECKING:
    from headrace.client.security import ClientSecurity

PREFIXES = ("security.", "sasl.", "ssl.")


def checked_client(given: Mapping[str, str], beside: Path | None) -> dict[str, str]:
    """Raises `ConfigProblems` if they cannot be used. Paths are relative to the connector's file."""
    if not given:
        return {}
    from headrace.client.security import misspelt_options  # only who logs in waits for it

    problems = [f"client has no setting {name}: did you mean {meant}?" for name, meant in misspelt_options(given)]
    problems += [
        f"client has no setting {name}: it takes security.protocol, sasl.* and ssl.*"
        for name in given
        if not name.startswith(PREFIXES)
    ]
    if problems:
        raise ConfigProblems(problems)
    folder = beside or Path()
    client = {name: str(folder / value) if name.endswith(".location") else value for name, value in given.items()}
    try:
        security = security_of(client)
        if security is not None and security.context is not None:
            security.context()  # report a missing file before anything is sent
    except (ConfigError, TlsFault) as error:
        raise ConfigProblems([f"client: {error}"]) from None
    return client


def security_of(client: Mapping[str, str]) -> ClientSecurity | None:
    """None: nothing is said."""
    if not client:
        return None
    from headrace.client.security import client_security

    return client_security(client.get, os.urandom)


def with_client(settings: ClientSettings, client: Mapping[str, str]) -> ClientSettings:
    """With what a file says of logging in and of TLS, if it says anything."""
    security = security_of(client)
    return settings if security is None else replace(settings, login=security.login, tls=security.context)
