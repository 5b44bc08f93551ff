"""`headrace tls dev`: what it makes, what it refuses, and that a broker does not show it to a network."""

from __future__ import annotations

import ssl
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509

from headrace.cli.main import command_line
from headrace.config.listeners import ConfiguredListener
from headrace.config.principal_rules import PrincipalRules
from headrace.config.tls_config import ListenerTls
from headrace.env.tls import client_context, server_context
from headrace.model.tls import PEM, REQUIRED, KeyStore, TlsFault, TlsMaterial, TrustStore
from headrace.server.tls.identity import TlsIdentity
from headrace.testing import Broker


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(command_line, ["tls", "dev", "--dir", str(folder), *words])


def material(folder: Path) -> TlsMaterial:
    return TlsMaterial(
        KeyStore(PEM, str(folder / "broker.pem")), TrustStore(PEM, str(folder / "ca.pem")), client_auth=REQUIRED
    )


def test_what_is_made_fits_together_and_is_kept_private(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    assert run(folder, "--client", "alice").exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["alice.pem", "broker.pem", "ca.key", "ca.pem"]
    for name in ("alice.pem", "broker.pem", "ca.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    server = server_context(material(folder))
    shown = TlsMaterial(KeyStore(PEM, str(folder / "alice.pem")), TrustStore(PEM, str(folder / "ca.pem")))
    for host in ("localhost", "127.0.0.1", "::1"):
        shake_hands(server, client_context(shown), host)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client_context(shown), "example.org")


def test_again_it_renews_what_the_same_authority_signed(tmp_path: Path) -> None:
    assert run(tmp_path).exit_code == 0
    authority, broker = (tmp_path / "ca.pem").read_text(), (tmp_path / "broker.pem").read_text()
    assert run(tmp_path).exit_code == 0
    assert (tmp_path / "ca.pem").read_text() == authority
    assert (tmp_path / "broker.pem").read_text() != broker
    (tmp_path / "ca.key").write_text("nonsense")
    assert "cannot be used" in run(tmp_path).output


def test_an_authority_that_ends_soon_is_renewed(tmp_path: Path) -> None:
    """It was kept even when it had expired, and nobody could use what it signed."""
    assert run(tmp_path, "--days", "1", "--client", "alice").exit_code == 0
    old = {name: (tmp_path / name).read_text() for name in ("ca.pem", "ca.key", "broker.pem", "alice.pem")}
    done = run(tmp_path)
    assert "Renewed the CA with the same key" in done.output
    assert (tmp_path / "ca.key").read_text() == old["ca.key"]
    assert stat.S_IMODE((tmp_path / "ca.pem").stat().st_mode) & 0o400
    certificate = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=89)
    new = server_context(material(tmp_path))
    (tmp_path / "old.pem").write_text(old["ca.pem"])
    for authority in ("ca.pem", "old.pem"):
        shown = TlsMaterial(KeyStore(PEM, str(tmp_path / "alice.pem")), TrustStore(PEM, str(tmp_path / authority)))
        shake_hands(new, client_context(shown), "localhost")
    assert "Renewed" not in run(tmp_path).output


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headrace.env.certificates", None)
    done = run(tmp_path / "tls")
    assert done.exit_code == 1, done.output
    assert "pip install 'headrace[security]'" in done.stderr
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'headrace\[security\]'"):
        Broker(tls=True, data_dir=tmp_path).command()
    assert list(tmp_path.iterdir()) == []


def test_a_network_must_be_asked_for(tmp_path: Path) -> None:
    refused = run(tmp_path / "a", "--host", "broker.example.org")
    assert refused.exit_code != 0
    assert "--network" in refused.output
    assert not (tmp_path / "a").exists()
    assert run(tmp_path / "b", "--host", "broker.example.org", "--network").exit_code == 0
    assert run(tmp_path / "c").exit_code == 0
    assert run(tmp_path / "c", "--client", "../alice").exit_code != 0

    def load(folder: Path, host: str) -> None:
        settings = ListenerTls(material(folder), PrincipalRules.parse("DEFAULT"), names_principals=True)
        TlsIdentity(ConfiguredListener("SSL", host, 9093, "SSL"), settings).load()

    load(tmp_path / "b", "0.0.0.0")
    load(tmp_path / "c", "127.0.0.1")
    with pytest.raises(TlsFault, match="for this machine only"):
        load(tmp_path / "c", "0.0.0.0")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=host),
    ]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue
