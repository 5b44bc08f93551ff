"""What TLS is made of, as values: where keys and trusted certificates come from, which versions and ciphers."""

from __future__ import annotations

from dataclasses import dataclass, field

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
STORE_TYPES = (PEM, PKCS12)
TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
TLS_VERSIONS = (TLS_1_2, TLS_1_3)

FOR_THIS_MACHINE = "made by headrace tls dev for this machine only"
"""A line in a key store that no broker offers on a network."""

NO_CLIENT_AUTH, REQUESTED, REQUIRED = "none", "requested", "required"
CLIENT_AUTH = (REQUIRED, REQUESTED, NO_CLIENT_AUTH)


class TlsFault(OSError):
    """Keys or certificates that cannot be used; the text says which, and what to do."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A certificate with its chain, and its key: in a file, in two, or in the settings themselves."""

    type: str = PEM
    location: str = ""
    key_location: str = ""
    """The file with the key, if it is not with the certificate."""
    password: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    chain: str = field(default="", repr=False)
    """The chain in PEM, if there is no location."""
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class TrustStore:
    """The certificates of the authorities that are trusted, and lists of certificates that they revoked."""

    type: str = PEM
    location: str = ""
    password: str = field(default="", repr=False)
    certificates: str = field(default="", repr=False)
    """The certificates in PEM, if there is no location."""


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    own: KeyStore | None = None
    trusted: TrustStore | None = None
    """None for the authorities that the system trusts."""
    minimum: str = TLS_1_2
    maximum: str = TLS_1_3
    ciphers: str = ""
    """The cipher suites for TLS 1.2, in OpenSSL's notation; empty for its default."""
    verify: bool = True
    """For a client, whether the server must have a trusted certificate."""
    verify_host: bool = True
    """For a client, whether the certificate must be for the host that was requested."""
    client_auth: str = NO_CLIENT_AUTH
    """For a server, whether clients must have a certificate."""

    @property
    def files(self) -> tuple[str, ...]:
        named = []
        if self.own is not None:
            named += [self.own.location, self.own.key_location]
        if self.trusted is not None:
            named.append(self.trusted.location)
        return tuple(location for location in named if location)
