"""Where brokers are: `host:port`, and lists of such as people write them."""

from __future__ import annotations

import re
from typing import NamedTuple

DEFAULT_PORT = 9092
MAX_PORT = 65535
_ADDRESS = re.compile(
    r"(?:\w+://)?(?:\[(?P<six>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^\s:\[\]/@]+))(?::(?P<port>\d+))?/?"
)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`host`, `host:port`, `[::1]:port`, each also with a scheme in front; ValueError says what is wrong."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text.strip()!r} is not of the form host:port")
    port = int(match["port"]) if match["port"] else DEFAULT_PORT
    if not 0 < port <= MAX_PORT:
        raise ValueError(f"{text.strip()!r} has the port {port}; ports are 1 to {MAX_PORT}")
    return Address(match["six"] or match["host"], port)


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """A list separated by commas, in the order in which the brokers are tried."""
    addresses = tuple(parse_address(part) for part in text.split(",") if part.strip())
    if not addresses:
        raise ValueError("the list of bootstrap servers is empty")
    return tuple(dict.fromkeys(addresses))
