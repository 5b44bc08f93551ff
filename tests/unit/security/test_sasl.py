"""SASL without I/O: the two sides of SCRAM and PLAIN, and what a peer can get wrong."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.sasl import PlainServer, SaslListener, ScramUsers, begin, plain_message
from headrace.security.scram import (
    MECHANISMS,
    AuthenticationFailed,
    ScramClient,
    ScramCredential,
    ScramServer,
    new_credential,
)

MECHANISM = "SCRAM-SHA-256"
SALT, NONCE, OTHER_NONCE, SECRET = b"s" * 24, b"c" * 24, b"n" * 24, b"x" * 32


def server(mechanism: str, **users: str) -> ScramServer:
    kept = {user: new_credential(mechanism, password, SALT) for user, password in users.items()}
    return ScramServer(mechanism, kept.get, NONCE, SECRET)


def converse(one: ScramServer, client: ScramClient) -> None:
    client.check(one.step(client.final(one.step(client.first()))))


@pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
def test_the_right_password(mechanism: str) -> None:
    broker = server(mechanism, alice="secret")
    converse(broker, ScramClient(mechanism, "alice", "secret", OTHER_NONCE))
    assert (broker.done, broker.user) == (True, "alice")


@pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "secret"), ("alice", "")])
def test_the_wrong_password_and_the_wrong_user_fail_at_the_same_step(
    mechanism: str, user: str, password: str
) -> None:
    broker = server(mechanism, alice="secret")
    client = ScramClient(mechanism, user, password, OTHER_NONCE)
    final = client.final(broker.step(client.first()))
    with pytest.raises(AuthenticationFailed, match="wrong password, or no such user"):
        broker.step(final)
    assert not broker.done


def test_a_user_that_does_not_exist_has_a_salt_of_its_own() -> None:
    salts = {
        user: server("SCRAM-SHA-256").step(f"n,,n={user},r=x".encode()).split(b",")[1]
        for user in ("eve", "mallory")
    }
    assert salts["eve"] != salts["mallory"]
    assert server("SCRAM-SHA-256").step(b"n,,n=eve,r=x").split(b",")[1] == salts["eve"]


def said_salt(users: dict[str, ScramCredential], user: str) -> tuple[bytes, bytes]:
    """The salt and the iterations that somebody without a password gets to see."""
    known = ScramUsers({name: {MECHANISM: credential} for name, credential in users.items()})
    broker = begin(MECHANISM, SaslListener((MECHANISM,)), known, lambda size: bytes(size), SECRET)
    parts = dict(part.split(b"=", 1) for part in broker.step(f"n,,n={user},r=x".encode()).split(b","))
    return base64.b64decode(parts[b"s"]), parts[b"i"]


def test_a_user_that_does_not_exist_looks_like_one_of_the_users() -> None:
    """Clients choose salts and iterations: librdkafka takes 64 bytes, Java a number in base 36."""
    java = new_credential(MECHANISM, "p", b"1h0kd8mrh8hhl9gk9fjs5v3tkm", 8192)
    long = new_credential(MECHANISM, "p", bytes(range(64)), 4096)
    for users, lengths, iterations in (
        ({"long": long}, {64}, {b"4096"}),
        ({"java": java}, {25, 26}, {b"8192"}),
        ({"java": java, "long": long}, {25, 26, 64}, {b"4096", b"8192"}),
        ({}, {24}, {b"4096"}),
    ):
        seen = [said_salt(users, f"nobody-{number}") for number in range(100)]
        assert {len(salt) for salt, _ in seen} >= lengths
        assert {said for _, said in seen} == iterations
        assert len({salt for salt, _ in seen}) == 100
        for salt, said in seen:
            assert said != b"8192" or salt.decode().isalnum()


def test_a_user_that_does_not_exist_stays_the_same_while_others_come_and_go() -> None:
    users = {str(number): new_credential(MECHANISM, "p", bytes(20 + number)) for number in range(3)}
    more = {**users, "another": new_credential(MECHANISM, "p", bytes(22))}
    for number in range(20):
        assert said_salt(users, f"nobody-{number}") == said_salt(more, f"nobody-{number}")


def test_names_with_commas_and_equals_signs() -> None:
    kept = {"a,b=c": new_credential("SCRAM-SHA-256", "p", SALT)}
    broker = ScramServer("SCRAM-SHA-256", kept.get, NONCE, SECRET)
    converse(broker, ScramClient("SCRAM-SHA-256", "a,b=c", "p", OTHER_NONCE))
    assert broker.user == "a,b=c"


@pytest.mark.parametrize(
    "first",
    [b"", b"n", b"n,,", b"n,,r=x", b"n,,n=alice", b"p=tls-unique,,n=alice,r=x", b"n,a=bob,n=alice,r=x",
     b"n,,n=al=ice,r=x", b"n,,m=1,n=alice,r=x", b"\xff\xfe", b"n,,n=alice,r=" + b"x" * 5000, b"n,,n=a,n=b,r=x"],
)  # fmt: skip
def test_bad_first_messages(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server("SCRAM-SHA-256", alice="secret").step(first)


@pytest.mark.parametrize("change", ["nonce", "binding", "proof", "short", "base64", "order"])
def test_bad_last_messages(change: str) -> None:
    broker = server("SCRAM-SHA-256", alice="secret")
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", OTHER_NONCE)
    final = client.final(broker.step(client.first())).decode()
    head, _, proof = final.rpartition(",p=")
    broken = {
        "nonce": final.replace(",r=", ",r=x"),
        "binding": final.replace("c=biws", "c=eSws"),
        "proof": f"{head},p={base64.b64encode(bytes(32)).decode()}",
        "short": f"{head},p=AAAA",
        "base64": f"{head},p=***",
        "order": f"p={proof},{head}",
    }[change]
    with pytest.raises(AuthenticationFailed):
        broker.step(broken.encode())
    assert not broker.done


def test_a_message_is_not_said_twice() -> None:
    broker = server("SCRAM-SHA-256", alice="secret")
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", OTHER_NONCE)
    final = client.final(broker.step(client.first()))
    broker.step(final)
    with pytest.raises(AuthenticationFailed):
        broker.step(final)


@pytest.mark.parametrize(
    "answer", [b"r=other,s=AAAA,i=4096", b"r=%s,s=AAAA,i=4096", b"r=%sx,s=AAAA,i=1", b"r=%sx,s=AAAA,i=99999999"]
)
def test_a_client_does_not_trust_every_broker(answer: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", OTHER_NONCE)
    mine = base64.b64encode(OTHER_NONCE)
    with pytest.raises(AuthenticationFailed):
        client.final(answer.replace(b"%s", mine))


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", OTHER_NONCE)
    client.final(server("SCRAM-SHA-256", alice="other").step(client.first()))
    with pytest.raises(AuthenticationFailed):
        client.check(b"v=" + base64.b64encode(bytes(32)))


def test_a_credential_shows_no_keys() -> None:
    kept = new_credential("SCRAM-SHA-256", "secret", SALT)
    assert repr(kept.stored_key) not in repr(kept)
    assert repr(kept.server_key) not in repr(kept)
    assert kept == ScramCredential(kept.salt, kept.iterations, kept.stored_key, kept.server_key)


def test_plain() -> None:
    broker = PlainServer({"alice": "secret"})
    assert broker.step(plain_message("alice", "secret")) == b""
    assert (broker.user, broker.done) == ("alice", True)


@pytest.mark.parametrize(
    "message",
    [b"", b"\0", b"\0\0", b"\0alice\0", b"\0\0secret", b"alice\0secret", b"\0alice\0wrong", b"\0bob\0secret",
     b"bob\0alice\0secret", b"\0alice\0secret\0", b"\0\xff\0secret", b"\0alice\0" + b"x" * 9000],
)  # fmt: skip
def test_plain_that_fails(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        PlainServer({"alice": "secret", "empty": ""}).step(message)


def test_who_fails_is_known_to_the_audit() -> None:
    broker = PlainServer({"alice": "secret"})
    with pytest.raises(AuthenticationFailed):
        broker.step(plain_message("eve", "guessed"))
    assert (broker.user, broker.done) == ("eve", False)


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_nonsense_raises_nothing_else(messages: list[bytes]) -> None:
    for one in (server("SCRAM-SHA-256"), server("SCRAM-SHA-512"), PlainServer({"a": "b"})):
        for message in messages:
            try:
                one.step(message)
            except AuthenticationFailed:
                break
        assert not one.done
