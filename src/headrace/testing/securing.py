"""Users and TLS for a broker of a test, in one argument: what the broker needs, and what its clients do.

Passwords go into a file, since a command line can be read by everybody. Certificates are made for the one broker,
by an authority of its own; that needs the extra `headrace[security]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BROKER_USER = "headrace-broker"
HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class Securing:
    """`users`: names and passwords; with none, clients do not log in."""

    users: Mapping[str, str] = field(default_factory=dict)
    tls: bool = False

    def __bool__(self) -> bool:
        return bool(self.users) or self.tls

    @property
    def protocol(self) -> str:
        return f"SASL_{self._transport}" if self.users else self._transport

    @property
    def _transport(self) -> str:
        return "SSL" if self.tls else "PLAINTEXT"

    def write(self, folder: Path) -> Path:
        """The settings file of the broker, and its certificates."""
        lines = [*self._sasl_lines(), *(self._tls_lines(folder) if self.tls else ())]
        path = folder / "secured.properties"
        path.touch(mode=0o600)
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def _sasl_lines(self) -> list[str]:
        if not self.users:
            return []
        known = {BROKER_USER: "of this broker", **self.users}
        users = " ".join(f'user_{name}="{password}"' for name, password in known.items())
        own = f'username="{BROKER_USER}" password="{known[BROKER_USER]}"'
        return [
            "sasl.enabled.mechanisms=PLAIN",
            "sasl.mechanism.inter.broker.protocol=PLAIN",
            f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config={PLAIN_MODULE} required {own} {users};",
            f"super.users=User:{BROKER_USER};User:{next(iter(self.users))}",
        ]

    def _tls_lines(self, folder: Path) -> list[str]:
        try:
            from headrace.env.certificates import make_authority, make_certificate
        except ImportError:
            raise ModuleNotFoundError(
                "tls=True needs the package cryptography: pip install 'headrace[security]'", name="cryptography"
            ) from None

        authority = make_authority("headrace.testing")
        store = folder / "broker.pem"
        store.touch(mode=0o600)
        store.write_text(make_certificate(authority, "CN=broker", HOSTS).store)
        self.ca_file(folder).write_text(authority.pem)
        return [
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={store}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.ca_file(folder)}",
        ]

    @staticmethod
    def ca_file(folder: Path) -> Path:
        return folder / "ca.pem"

    def client_settings(self, folder: Path, user: str | None) -> dict[str, str]:
        """In librdkafka's words; `user` defaults to the first one, who may do everything."""
        if not self:
            return {}
        found = {"security.protocol": self.protocol}
        if self.users:
            name = next(iter(self.users)) if user is None else user
            if name not in self.users:
                raise ValueError(f"there is no user {name}; the broker was started with {', '.join(self.users)}")
            found |= {"sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": self.users[name]}
        if self.tls:
            found["ssl.ca.location"] = str(self.ca_file(folder))
        return found

    def python_settings(self, folder: Path, user: str | None) -> dict[str, str]:
        """In the words of kafka-python; aiokafka takes them but for `ssl_cafile`."""
        words = {
            "security.protocol": "security_protocol",
            "sasl.mechanism": "sasl_mechanism",
            "sasl.username": "sasl_plain_username",
            "sasl.password": "sasl_plain_password",
            "ssl.ca.location": "ssl_cafile",
        }
        return {words[name]: value for name, value in self.client_settings(folder, user).items()}
