"""Logins that are none: random steps, changed messages, in every state and with every mechanism.

Whatever a peer says: nobody is let in who is not right, nothing of ours fails, and others log in meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.security.sasl import plain_message
from headrace.security.scram import ScramClient
from headrace.security.tokens import oauth_message
from headrace.testing.in_process import Client, connect
from tests.compat.issuer import AUDIENCE, ISSUER, Issuer
from tests.unit.server.test_authentication import JAAS, handshake, say, see, settings, started

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PEERS = 150
NOISE = b"\x00\x01,=nyp" + bytes(range(32, 127))


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[tuple[str, Issuer]]:
    issuer = Issuer(folder)
    file = settings(folder / "data") | {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.jwks}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    async with started(file) as (_, address):
        yield address, issuer


class Peer:
    """Says things that are nearly right."""

    def __init__(self, rng: random.Random, issuer: Issuer) -> None:
        self._rng = rng
        self._good = [
            plain_message("alice", "guessed"),
            oauth_message(issuer.token(aud="others")),
            oauth_message(issuer.token(seconds=-600)),
            ScramClient("SCRAM-SHA-256", "alice", "secret", rng.randbytes(24)).first(),
            b"c=biws,r=abc,p=" + b"A" * 44,
            b"n,a=alice,\x01auth=Bearer \x01\x01",
            b"",
        ]

    def message(self) -> bytes:
        """One that would not let it in anyway, changed here and there."""
        changed = bytearray(self._rng.choice(self._good))
        for _ in range(self._rng.randrange(1, 6)):
            place = self._rng.randrange(len(changed) + 1)
            match self._rng.randrange(4):
                case 0:
                    changed.insert(place, self._rng.choice(NOISE))
                case 1:
                    del changed[place : place + self._rng.randrange(1, 40)]
                case 2:
                    changed[place:place] = self._rng.randbytes(self._rng.randrange(1, 30))
                case _:
                    changed += changed[:place]
        return bytes(changed)

    async def talk(self, client: Client) -> None:
        """Until the broker has enough of it."""
        for _ in range(self._rng.randrange(1, 6)):
            match self._rng.randrange(8):
                case 0 | 1 | 2:
                    await handshake(client, self._rng.choice((*MECHANISMS, "", "GSSAPI", "X" * 300)))
                case 3:
                    raise AssertionError(f"it was let in and told {await see(client)}")
                case _:
                    await say(client, self.message())
        raise AssertionError(f"it was let in and told {await see(client)}")


async def test_nobody_gets_in_and_nothing_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(18)
    async with broker(tmp_path) as (address, issuer):
        peer = Peer(rng, issuer)
        for number in range(PEERS):
            client = await connect(address)
            try:
                await peer.talk(client)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            client._writer.close()
            if number % 50 == 0:
                good = await connect(address)
                assert (await handshake(good, "OAUTHBEARER")).error_code == 0
                assert (await say(good, oauth_message(issuer.token()))).error_code == 0
                assert (await see(good)).cluster_id
                good._writer.close()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert "internal error" not in caplog.text
    assert "Traceback" not in caplog.text
