"""SCRAM (RFC 5802, RFC 7677) without I/O: credentials, the broker's side of the exchange, and the client's.

    client first    n,,n=USER,r=NONCE
    server first    r=NONCE+OURS,s=SALT,i=ITERATIONS
    client final    c=biws,r=NONCE+OURS,p=PROOF
    server final    v=SIGNATURE

What is kept of a password cannot be used to log in: a salted hash of a hash. A user that does not exist is
answered with a salt of its own, the same every time and of a shape that users have, and fails where a wrong
password fails: nobody can find out which users exist.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

MECHANISMS: dict[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""
MECHANISM_NUMBERS: dict[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms by Kafka's numbers in requests."""
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
SALT_BYTES = 24
NONCE_BYTES = 24
MAX_MESSAGE_BYTES = 4096
MAX_SHAPES = 16
"""The number of shapes from which those of made-up credentials are chosen."""
JAVA_SALT_BITS = 130
JAVA_SALT_LENGTHS = (23, 24, 25, 26)
"""The lengths of nearly all such salts."""
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"
_NO_CHANNEL_BINDING = "biws"


class AuthenticationFailed(Exception):
    """The peer is not who it claims to be, or sent nonsense. The text is for our log, never for the peer."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    function = MECHANISMS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", function)
    stored_key = hashlib.new(function, client_key).digest()
    return ScramCredential(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", function))


def new_credential(
    mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


class ScramShape(NamedTuple):
    """The parts of a credential that everybody sees before proving to know the password."""

    iterations: int = MIN_ITERATIONS
    salt_bytes: int | None = SALT_BYTES
    """The length of the salt; None for a salt as Java's tools make it: a number of 130 bits in base 36."""

    def salt(self, seed: bytes) -> bytes:
        if self.salt_bytes is None:
            return _in_base_36(int.from_bytes(seed, "big") >> 8 * len(seed) - JAVA_SALT_BITS)
        return hashlib.shake_256(seed).digest(self.salt_bytes)


def shapes_of(credentials: Iterable[ScramCredential]) -> tuple[ScramShape, ...]:
    """The shapes of the users' credentials, the most frequent first; our own if there are no users."""
    found = Counter(ScramShape(one.iterations, _salt_bytes(one.salt)) for one in credentials)
    return tuple(shape for shape, _ in found.most_common(MAX_SHAPES)) or (ScramShape(),)


def _salt_bytes(salt: bytes) -> int | None:
    java = JAVA_SALT_LENGTHS[0] <= len(salt) <= JAVA_SALT_LENGTHS[-1] and not salt.strip(_DIGITS)
    return None if java else len(salt)


def _in_base_36(number: int) -> bytes:
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits))


class ScramServer:
    """One authentication on the broker's side: call `step` twice, then `user` is who it is."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        nonce: bytes,
        secret: bytes,
        shapes: tuple[ScramShape, ...] = (ScramShape(),),
    ) -> None:
        """`nonce` is random and used once. `secret` makes the salts of users that do not exist, in `shapes`."""
        self._shapes = shapes
        self._function = MECHANISMS[mechanism]
        self._find = find
        self._nonce = base64.b64encode(nonce).decode()
        self._secret = secret
        self._first = ""
        self._server_first = ""
        self._full_nonce = ""
        self._binding = ""
        self._credential: ScramCredential | None = None
        self._exists = False
        self.user = ""
        self.done = False
        self.expires_s: float | None = None

    def step(self, message: bytes) -> bytes:
        text = _text(message)
        return self._answer_first(text) if not self._first else self._answer_final(text)

    def _answer_first(self, text: str) -> bytes:
        header, bare = _after_header(text)
        parts = _attributes(bare)
        if "m" in parts or not parts.get("n") or not parts.get("r"):
            raise AuthenticationFailed("the first message of SCRAM is malformed")
        user = _unquoted(parts["n"])
        if header and header != user:
            raise AuthenticationFailed("acting for another user is not supported")
        self.user = user
        found = self._find(user)
        self._exists = found is not None
        # Made in any case, so that the time says nothing.
        made_up = self._made_up(user)
        self._credential = found or made_up
        self._first = bare
        # The last message repeats the header: nobody between us has changed it.
        self._binding = base64.b64encode(text[: len(text) - len(bare)].encode()).decode()
        self._full_nonce = parts["r"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        self._server_first = f"r={self._full_nonce},s={salt},i={self._credential.iterations}"
        return self._server_first.encode()

    def _answer_final(self, text: str) -> bytes:
        parts = _attributes(text)
        credential = self._credential
        if credential is None or self.done or parts.get("r") != self._full_nonce or "p" not in parts:
            raise AuthenticationFailed("the last message of SCRAM is malformed")
        if parts.get("c") != self._binding or not text.rpartition(",")[2].startswith("p="):
            raise AuthenticationFailed("the last message of SCRAM is malformed")
        proof = _decoded(parts["p"])
        without_proof = text.rpartition(",p=")[0]
        said = f"{self._first},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, said, self._function)
        if len(proof) != len(signature):
            raise AuthenticationFailed("the proof of SCRAM has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        right = hmac.compare_digest(hashlib.new(self._function, client_key).digest(), credential.stored_key)
        if not right or not self._exists:
            raise AuthenticationFailed("wrong password, or no such user")
        self.done = True
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, said, self._function))

    def _made_up(self, user: str) -> ScramCredential:
        """Made-up credentials: always the same for a name, and different for every other name.

        The shape too stays the same while other users come and go: the one that scores highest with the name.
        """
        seed = hmac.digest(self._secret, user.encode(), "sha512")
        shape = max(self._shapes, key=lambda one: hmac.digest(seed, repr(tuple(one)).encode(), "sha256"))
        size = hashlib.new(self._function).digest_size
        return ScramCredential(shape.salt(seed), shape.iterations, seed[-size:], seed[:size])


class ScramClient:
    """One authentication on the client's side: `first`, `final` with the answer, `check` with the last one."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: bytes) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = base64.b64encode(nonce).decode()
        self._bare = f"n={_quoted(user)},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        server_first = _text(answer)
        parts = _attributes(server_first)
        nonce, iterations = parts.get("r", ""), parts.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not iterations.isdigit():
            raise AuthenticationFailed("the broker's first message of SCRAM is malformed")
        if int(iterations) < MIN_ITERATIONS:
            raise AuthenticationFailed(f"the broker asks for {iterations} iterations, fewer than {MIN_ITERATIONS}")
        if int(iterations) > MAX_ITERATIONS * 64:
            raise AuthenticationFailed(f"the broker asks for {iterations} iterations, which would take too long")
        function = MECHANISMS[self._mechanism]
        salt = _decoded(parts.get("s", ""))
        salted = salted_password(self._mechanism, self._password, salt, int(iterations))
        credential = credential_of(self._mechanism, salted, salt, int(iterations))
        without_proof = f"c={_NO_CHANNEL_BINDING},r={nonce}"
        said = f"{self._bare},{server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, said, function)
        client_key = hmac.digest(salted, b"Client Key", function)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(credential.server_key, said, function)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        """Check that the broker knows the password too."""
        parts = _attributes(_text(answer))
        if not hmac.compare_digest(_decoded(parts.get("v", "")), self._signature):
            raise AuthenticationFailed("the broker does not know the password")


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise AuthenticationFailed("a message of SCRAM is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a message of SCRAM is not text") from None


def _after_header(text: str) -> tuple[str, str]:
    """The name to act for, and the message without its header."""
    binding, comma, rest = text.partition(",")
    authorization, comma2, bare = rest.partition(",")
    if binding not in ("n", "y") or not comma or not comma2:
        raise AuthenticationFailed("the first message of SCRAM has no header, or asks for channel binding")
    return _unquoted(authorization.removeprefix("a=")), bare


def _attributes(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name or name in parts:
            raise AuthenticationFailed("a message of SCRAM is malformed")
        parts[name] = value
    return parts


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("a message of SCRAM is malformed") from None


def _quoted(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unquoted(name: str) -> str:
    plain = name.replace("=2C", ",").replace("=3D", "\0")
    if "=" in plain:
        raise AuthenticationFailed("a user's name is malformed")
    return plain.replace("\0", "=")
