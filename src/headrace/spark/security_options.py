"""`kafka.security.protocol`, `kafka.sasl.*` and `kafka.ssl.*` of source and sink: as clients have them.

Files are opened by the driver and by every executor: they must be there under the same path.
"""

from __future__ import annotations

import os

from headrace.client.security import OPTIONS, ClientSecurity, client_security
from headrace.config.setting import ConfigError
from headrace.spark.option_table import GivenOptions, OptionError, near_name

SECURITY_PREFIXES = ("kafka.security.", "kafka.sasl.", "kafka.ssl.", "kafka.enable.ssl.")
PREFIX = "kafka."
PROTOCOL = "kafka.security.protocol"


def parse_security(options: GivenOptions) -> ClientSecurity | None:
    """None where nothing is asked for."""
    given = [name for name in options.names() if name.startswith(SECURITY_PREFIXES)]
    if not given:
        return None
    if PROTOCOL not in options:
        raise OptionError(given[0], f"it has no effect without {PROTOCOL}", f"write {PROTOCOL} too, as SASL_SSL")
    for name in given:
        if name.removeprefix(PREFIX) in (*OPTIONS, "sasl.mechanisms"):
            continue
        if (near := near_name(name, [PREFIX + option for option in OPTIONS])) is not None:
            raise OptionError(name, "there is no such option", f"did you mean {near}?")
    try:
        security = client_security(lambda name: options.text(PREFIX + name), os.urandom)
        if security.context is not None:
            security.context()  # report unreadable files before anything is sent
    except ConfigError as error:
        raise OptionError(_named_in(str(error), given), str(error)) from None
    except OSError as error:
        raise OptionError(_named_in(str(error), given), str(error)) from None
    return security if security.login is not None or security.tls is not None else None


def _named_in(text: str, given: list[str]) -> str:
    """The option that a message is about, else the protocol that asked for it."""
    return next((name for name in given if text.startswith(name.removeprefix(PREFIX))), PROTOCOL)
