"""Certificates for trying out TLS: a private certificate authority, and the certificates that it signs. Needs
`cryptography`.

Keys are of the curve P-256, which every client of the last ten years knows and whose handshakes are cheap.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCKS_DIFFER = timedelta(hours=1)
_KINDS = {
    "CN": NameOID.COMMON_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "C": NameOID.COUNTRY_NAME,
}


@dataclass(frozen=True, slots=True)
class Certificate:
    certificate: x509.Certificate
    private: ec.EllipticCurvePrivateKey = field(repr=False)

    def ends_within(self, days: int) -> bool:
        """Whether it would be older than certificates that are made now; some minutes do not count."""
        end = datetime.now(UTC) + timedelta(days=days) - CLOCKS_DIFFER
        return self.certificate.not_valid_after_utc < end

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key(self) -> str:
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    @property
    def store(self) -> str:
        """Certificate and key in one, as Kafka wants a PEM key store."""
        return self.pem + self.key

    def encrypted_key(self, password: str) -> str:
        how = BestAvailableEncryption(password.encode())
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    def pkcs12(self, password: str, authority: Certificate | None = None) -> bytes:
        how = BestAvailableEncryption(password.encode())
        chain = [authority.certificate] if authority is not None else None
        return pkcs12.serialize_key_and_certificates(b"headrace", self.private, self.certificate, chain, how)


def make_authority(name: str, days: int = 365) -> Certificate:
    return _authority(_name(f"CN={name}"), ec.generate_private_key(ec.SECP256R1()), days)


def renewed_authority(authority: Certificate, days: int) -> Certificate:
    """With the same name and key: what one of the two has signed, the other has too."""
    return _authority(authority.certificate.subject, authority.private, days)


def _authority(subject: x509.Name, private: ec.EllipticCurvePrivateKey, days: int) -> Certificate:
    builder = _begun(subject, subject, private, days).add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return Certificate(builder.sign(private, hashes.SHA256()), private)


def read_certificate(certificate: bytes, key: bytes) -> Certificate:
    """`ValueError` if they were not made here."""
    private = load_pem_private_key(key, None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not one that `headrace tls dev` creates")
    return Certificate(x509.load_pem_x509_certificate(certificate), private)


def make_certificate(
    authority: Certificate, name: str, hosts: tuple[str, ...] = (), days: int = 365
) -> Certificate:
    """For a broker that is reached under these hosts, or for a client if there are none.

    `name` is the common name, or as `CN=alice,OU=billing,O=Acme`.
    """
    private = ec.generate_private_key(ec.SECP256R1())
    builder = _begun(_name(name), authority.certificate.subject, private, days)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]  # brokers are clients of each other
    if hosts:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.private.public_key())
    builder = builder.add_extension(issuer, critical=False)
    return Certificate(builder.sign(authority.private, hashes.SHA256()), private)


def revocations(authority: Certificate, revoked: tuple[Certificate, ...], days: int = 365) -> str:
    """The list of what the authority takes back, in PEM."""
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.certificate.subject)
    builder = builder.last_update(now - CLOCKS_DIFFER).next_update(now + timedelta(days=days))
    for one in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(one.certificate.serial_number)
        builder = builder.add_revoked_certificate(entry.revocation_date(now - CLOCKS_DIFFER).build())
    return builder.sign(authority.private, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def _begun(
    subject: x509.Name, issuer: x509.Name, private: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    """The most specific part first, as they are shown; a certificate has them the other way round."""
    parts = text.split(",") if "=" in text else [f"CN={text}"]
    pairs = [part.strip().partition("=") for part in parts]
    return x509.Name([x509.NameAttribute(_KINDS[kind.upper()], value) for kind, _, value in reversed(pairs)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
