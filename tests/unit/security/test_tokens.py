"""Tokens of OAUTHBEARER: which are believed, and which are not."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from headrace.security.scram import AuthenticationFailed
from headrace.security.tokens import (
    CheckedToken,
    OAuthServer,
    TokenKeySet,
    TokenRules,
    UnknownKey,
    check_token,
    oauth_message,
    parse_keys,
)

NOW = 1_000_000.0
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
RULES = TokenRules("https://issuer", ("kafka", "headrace"))
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "exp": NOW + 100}


def jwks(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"keys": rows}).encode()


def row(key: Any, key_id: str | None, **more: str) -> dict[str, Any]:
    algorithm = {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256"}
    name = next((name for kind, name in algorithm.items() if isinstance(key, kind)), "EdDSA")
    made = json.loads(jwt.get_algorithm_by_name(name).to_jwk(key.public_key()))
    return {**made, **({"kid": key_id} if key_id else {}), **more}


KEYS = parse_keys(
    jwks(row(RSA_KEY, "r"), row(EC_KEY, "e"), row(ED_KEY, "d"), {"kty": "oct", "k": "c2VjcmV0", "kid": "s"})
)


def token(key: Any = RSA_KEY, algorithm: str = "RS256", key_id: str | None = "r", **claims: Any) -> str:
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(given, key, algorithm, {"kid": key_id} if key_id else None)


@pytest.mark.parametrize(
    ("key", "algorithm", "key_id"),
    [(RSA_KEY, "RS256", "r"), (RSA_KEY, "PS512", "r"), (EC_KEY, "ES256", "e"), (ED_KEY, "EdDSA", "d")],
)
def test_a_good_token(key: Any, algorithm: str, key_id: str) -> None:
    found = check_token(token(key, algorithm, key_id, scope="read write"), KEYS, RULES, NOW)
    assert found == CheckedToken("alice", NOW + 100, frozenset(("read", "write")))


def test_claims_of_other_names() -> None:
    rules = TokenRules(subject_claim="client", scope_claim="scp")
    found = check_token(token(client="bob", scp=["a", "b"], iss="anybody", aud=None), KEYS, rules, NOW)
    assert found == CheckedToken("bob", NOW + 100, frozenset(("a", "b")))


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": "soon"}, "expired"),
        ({"exp": float("nan")}, "expired"),
        ({"exp": float("inf")}, "expired"),
        ({"exp": 10**400}, "expired"),
        ({"exp": True}, "expired"),
        ({"nbf": float("nan")}, "not valid yet"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iss": "https://other"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "other"}, "udience"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "no sub"),
        ({"sub": ""}, "no sub"),
    ],
)
def test_a_token_that_says_the_wrong_thing(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        check_token(token(**claims), KEYS, RULES, NOW)


def test_clocks_may_differ_a_little() -> None:
    check_token(token(exp=NOW - 29, nbf=NOW + 29), KEYS, RULES, NOW)


def test_who_signs_it_counts() -> None:
    forged = token(OTHER_KEY)
    unsigned = jwt.encode(CLAIMS, "", "none", {"kid": "r"})
    shared = jwt.encode(CLAIMS, "known to everybody, as a public key is", "HS256", {"kid": "r"})
    secret = jwt.encode(CLAIMS, "secret" * 8, "HS256", {"kid": "s"})
    head, body, signature = token().split(".")
    changed = ".".join((head, body[:-2] + "AA", signature))
    crossed = token(EC_KEY, "ES256", "r")
    deep = base64.urlsafe_b64encode(b"[" * 40_000).decode().rstrip("=") + ".e30.AA"
    for bad in (forged, unsigned, shared, secret, changed, crossed, deep, "", "a.b.c", "é", "." * 1000):
        with pytest.raises(AuthenticationFailed):
            check_token(bad, KEYS, RULES, NOW)


def test_a_key_that_is_not_known_may_be_new() -> None:
    with pytest.raises(UnknownKey):
        check_token(token(key_id="new"), KEYS, RULES, NOW)
    with pytest.raises(UnknownKey):
        check_token(token(key_id=None), KEYS, RULES, NOW)
    with pytest.raises(UnknownKey):
        check_token(token(), TokenKeySet(()), RULES, NOW)
    only = parse_keys(jwks(row(RSA_KEY, None)))
    assert check_token(token(key_id=None), only, RULES, NOW).subject == "alice"


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"keys": {}}', jwks(), jwks({"kty": "oct", "k": "c2VjcmV0"}), jwks({"kty": "RSA"})],
)
def test_no_keys(text: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        parse_keys(text)


def test_the_message_of_a_client() -> None:
    def check(text: str) -> CheckedToken:
        assert text == "abc.def"
        return CheckedToken("alice", 7.0)

    for good in (
        oauth_message("abc.def"),
        b"n,a=alice,\x01auth=Bearer abc.def\x01\x01",
        b"n,,\x01auth=bearer abc.def\x01traceId=1\x01\x01",
        b"n,,\x01host=h\x01port=1\x01auth=Bearer abc.def\x01\x01",
    ):
        server = OAuthServer(check)
        assert server.step(good) == b""
        assert (server.user, server.done, server.expires_s) == ("alice", True, 7.0)
        with pytest.raises(AuthenticationFailed):
            server.step(good)
    for bad in (
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc.def",
        b"n,,\x01auth=Bearer abc.def\x01",
        b"y,,\x01auth=Bearer abc.def\x01\x01",
        b"n,a=bob,\x01auth=Bearer abc.def\x01\x01",
        b"n,,\x01auth=Bearer abc.def\x01auth=Bearer x\x01\x01",
        b"\xff,,\x01auth=Bearer abc.def\x01\x01",
        b"a\x01" * 30_000,
        b"n,,\x01auth=Bearer " + b"a" * 70_000 + b"\x01\x01",
    ):
        with pytest.raises(AuthenticationFailed):
            OAuthServer(check).step(bad)
