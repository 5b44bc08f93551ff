"""Who a client is, and how it says so: the client's side of SASL, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from headrace.security.sasl import PLAIN, SUPPORTED, plain_message
from headrace.security.scram import NONCE_BYTES, AuthenticationFailed, ScramClient
from headrace.security.tokens import OAUTHBEARER, oauth_message


@dataclass(frozen=True, slots=True)
class ClientLogin:
    mechanism: str
    user: str
    password: str = field(repr=False)
    random: Callable[[int], bytes] = field(repr=False, compare=False)
    """Returns the given number of unpredictable bytes."""
    token: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    """Returns a token for OAUTHBEARER; called at every login."""

    def __post_init__(self) -> None:
        assert self.mechanism in SUPPORTED, self.mechanism

    def begin(self) -> Generator[bytes, bytes, None]:
        """Yields the messages to send, and receives the answers."""
        if self.mechanism == OAUTHBEARER:
            assert self.token is not None
            yield oauth_message(self.token())
            return
        if self.mechanism == PLAIN:
            yield plain_message(self.user, self.password)
            return
        scram = ScramClient(self.mechanism, self.user, self.password, self.random(NONCE_BYTES))
        answer = yield scram.first()
        last = yield scram.final(answer)
        if not last:
            raise AuthenticationFailed("it did not prove that it knows the password")
        scram.check(last)
