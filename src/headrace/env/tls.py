"""From files and settings to the standard library's TLS contexts. Keys are never written to a disk.

The standard library takes certificates and keys by the name of a file. What is not one (PKCS#12, texts of the
settings) is put into a file in memory that has no name for others. PKCS#12 needs `cryptography`.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.model.tls import (
    FOR_THIS_MACHINE,
    JKS,
    NO_CLIENT_AUTH,
    PEM,
    REQUIRED,
    TLS_1_2,
    TLS_1_3,
    KeyStore,
    TlsFault,
    TlsMaterial,
    TrustStore,
)

MAX_STORE_BYTES = 16 * 1024 * 1024
_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_JKS_MAGIC, _JCEKS_MAGIC, _DER_SEQUENCE = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x30"
_REVOCATIONS = "-----BEGIN X509 CRL-----"


def server_context(material: TlsMaterial) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER, material)
    assert material.own is not None, "checked with the settings"
    _load_own(context, material.own)
    # A peer cannot make us repeat the costly part.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    if material.client_auth != NO_CLIENT_AUTH:
        assert material.trusted is not None, "checked with the settings"
        required = material.client_auth == REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        _load_trusted(context, material.trusted)
    return context


def client_context(material: TlsMaterial) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, material)
    context.check_hostname = material.verify and material.verify_host
    context.verify_mode = ssl.CERT_REQUIRED if material.verify else ssl.CERT_NONE
    if material.trusted is not None:
        _load_trusted(context, material.trusted)
    elif material.verify:
        context.load_default_certs()
    if material.own is not None:
        _load_own(context, material.own)
    return context


def fingerprint(material: TlsMaterial) -> tuple[tuple[int, ...], ...]:
    """Another one when a file of it has changed. A file that is missing right now counts as itself."""
    found: list[tuple[int, ...]] = []
    for path in material.files:
        try:
            status = os.stat(path)
        except OSError:
            found.append((0,))
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def is_for_this_machine(material: TlsMaterial) -> bool:
    """Whether the key store says that it is not for a network."""
    store = material.own
    if store is None or not store.location:
        return False
    return FOR_THIS_MACHINE.encode() in _read("ssl.keystore.location", store.location)


def _context(protocol: int, material: TlsMaterial) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[material.minimum]
    context.maximum_version = _VERSIONS[material.maximum]
    if material.ciphers:
        try:
            context.set_ciphers(material.ciphers)
        except ssl.SSLError:
            raise TlsFault(f"ssl.cipher.suites: none of {material.ciphers} is in OpenSSL here") from None
    return context


def _load_own(context: ssl.SSLContext, store: KeyStore) -> None:
    where = store.location or "ssl.keystore.certificate.chain"
    chain, key = _pem_of_key_store(store)
    password = store.key_password or store.password
    with _named(f"{chain}\n{key}") as path:
        try:
            # With a password even if there is none: else OpenSSL would ask on the terminal.
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            raise TlsFault(f"{where}: {_own_problem(error, chain + key, bool(password))}") from None


def _own_problem(error: ssl.SSLError, text: str, has_password: bool) -> str:
    if "BEGIN CERTIFICATE" not in text:
        return "there is no certificate in it (-----BEGIN CERTIFICATE-----)"
    if "PRIVATE KEY-----" not in text:
        return (
            "there is no private key in it (-----BEGIN PRIVATE KEY-----); certificate and key belong in one file"
        )
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the first certificate"
    if "ENCRYPTED" in text:
        return "the key cannot be decrypted: " + (
            "wrong password" if has_password else "ssl.key.password is missing"
        )
    return f"certificate or key cannot be used ({error.reason or error})"


def _pem_of_key_store(store: KeyStore) -> tuple[str, str]:
    if not store.location:
        return _lines(store.chain), _lines(store.key)
    content = _read("ssl.keystore.location", store.location)
    if _true_type("ssl.keystore", store.type, store.location, content) != PEM:
        return _pem_of_pkcs12(store.location, content, store.password)
    key = (
        _lines(_text(store.key_location, _read("ssl.key.location", store.key_location)))
        if store.key_location
        else ""
    )
    return _lines(_text(store.location, content)), key


def _load_trusted(context: ssl.SSLContext, store: TrustStore) -> None:
    where = store.location or "ssl.truststore.certificates"
    if store.location:
        content = _read("ssl.truststore.location", store.location)
        if _true_type("ssl.truststore", store.type, store.location, content) == PEM:
            text = _lines(_text(store.location, content))
        else:
            text, _ = _pem_of_pkcs12(store.location, content, store.password)
    else:
        text = _lines(store.certificates)
    with _named(text) as path:
        try:
            context.load_verify_locations(path)
        except ssl.SSLError:
            raise TlsFault(f"{where}: there is no certificate in it that can be used") from None
    if _REVOCATIONS in text:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _read(setting: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_STORE_BYTES)
    except OSError as error:
        raise TlsFault(f"{setting}: {path}: {error.strerror}") from None


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise TlsFault(f"{path} is not a text file with certificates") from None


def _true_type(setting: str, told: str, path: str, content: bytes) -> str:
    """What a file is, which is not always what was said: newer keytools write PKCS#12 and call it JKS."""
    if content.startswith((_JKS_MAGIC, _JCEKS_MAGIC)):
        raise TlsFault(
            f"{setting}.location: {path} is a Java keystore, which only Java can read. Convert it: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12, and write "
            f"{setting}.type=PKCS12 and {setting}.location=store.p12"
        )
    found = PEM if b"-----BEGIN " in content else "PKCS12" if content.startswith(_DER_SEQUENCE) else ""
    if not found:
        raise TlsFault(f"{setting}.location: {path} is neither PEM nor PKCS#12")
    if told not in (JKS, found):
        raise TlsFault(f"{setting}.type is {told}, and {path} is {found}: write {setting}.type={found}")
    if told == JKS and found == PEM:
        raise TlsFault(f"{path} is PEM: write {setting}.type=PEM")
    return found


def _pem_of_pkcs12(path: str, content: bytes, password: str) -> tuple[str, str]:
    """Certificates, those of the key first, and the key if there is one."""
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise TlsFault(
            f"{path}: PKCS#12 files need cryptography (pip install 'headrace[security]'); PEM files do not"
        ) from None
    try:
        store = pkcs12.load_pkcs12(content, password.encode() or None)
    except ValueError:
        raise TlsFault(f"{path} cannot be read: the password is wrong, or it is not a PKCS#12 file") from None
    first = [store.cert] if store.cert is not None else []
    chain = "".join(
        each.certificate.public_bytes(Encoding.PEM).decode() for each in (*first, *store.additional_certs)
    )
    if store.key is None:
        return chain, ""
    return chain, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _lines(text: str) -> str:
    """PEM in lines. In a settings file it may be on one line."""
    blocks = []
    for found in _BLOCK.finditer(text):
        label, body = found[1], found[2].strip()
        if "\n" not in body:
            joined = "".join(body.split())
            body = "\n".join(joined[start : start + 64] for start in range(0, len(joined), 64))
        blocks.append(f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    return "".join(blocks)


@contextmanager
def _named(text: str) -> Iterator[str]:
    """A file with that content, which only this process can open, for as long as it is needed."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("headrace-tls", os.MFD_CLOEXEC)
        try:
            os.write(fd, text.encode())
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile("w") as file:  # made readable for its owner only
        file.write(text)
        file.flush()
        yield file.name
