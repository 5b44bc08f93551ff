"""What answers where a broker was expected: a wrong port is usually a web server's, or one with TLS."""

from __future__ import annotations

import asyncio
import ssl

from headrace.client.address import Address
from headrace.client.errors import Reason

PROBE_TIMEOUT_S = 1.0
_TLS_ALERT, _TLS_HANDSHAKE, _TLS_MAJOR_VERSION = b"\x15", b"\x16", b"\x03"


def recognize(first_bytes: bytes) -> Reason | None:
    """What sends such bytes first is not a broker."""
    if first_bytes.startswith((b"HTTP/", b"<!DO", b"<htm")):
        return Reason.HTTP
    if first_bytes[:1] in (_TLS_ALERT, _TLS_HANDSHAKE) and first_bytes[1:2] == _TLS_MAJOR_VERSION:
        return Reason.TLS
    return Reason.NOT_KAFKA if first_bytes else None


async def probe(address: Address) -> Reason | None:
    """A server that hung up or stayed silent on our first words: does it speak HTTP, or TLS?"""
    return await _probe_http(address) or await _probe_tls(address)


async def _probe_http(address: Address) -> Reason | None:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(f"GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                first = await reader.read(16)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    recognized = recognize(first)
    return recognized if recognized is not Reason.NOT_KAFKA else None


async def _probe_tls(address: Address) -> Reason | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
            writer.close()
    except ssl.SSLError as error:
        # A refusal in TLS (a certificate is wanted, say) is TLS; nonsense in return is not.
        return Reason.TLS if "ALERT" in str(error).upper() else None
    except (OSError, TimeoutError):
        return None
    return Reason.TLS
