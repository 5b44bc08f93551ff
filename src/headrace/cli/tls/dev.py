"""`headrace tls dev`: a private certificate authority and certificates, for trying out TLS.

    ca.pem       what clients trust             ca.key       what signs; needed only to make more
    broker.pem   certificate and key of brokers  NAME.pem    certificate and key of a client

Made for this machine, they are marked so, and a broker refuses to show them to a network. Run again, the command
keeps the authority's key and renews the certificates, the authority's own too if it would end before them; brokers
that run take them by themselves.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.common.failure import FAILED, USAGE, CommandError
from headrace.cli.common.output import note
from headrace.model.tls import FOR_THIS_MACHINE

if TYPE_CHECKING:
    from headrace.env.certificates import Certificate

LOCAL = ("localhost", "127.0.0.1", "::1")
AUTHORITY = "Headrace development CA"
DEFAULT_DAYS = 90


@click.command()
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), default=Path("tls"), show_default=True
)
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST", help="Host name or address of the broker; may be repeated."
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="Also make a certificate for this client; may be repeated.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 825),
    default=DEFAULT_DAYS,
    show_default=True,
    help="Days of validity.",
)
@click.option("--network", is_flag=True, help="Allow names and addresses of other machines as --host.")
def dev(directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: int, network: bool) -> None:
    """Create a certificate authority (CA) and certificates for trying out TLS, in PEM.

    A CA that already exists in the directory is kept, and its certificates are renewed. If it would expire before
    them, it is renewed too, with the same key.
    """
    hosts = hosts or LOCAL
    _check_hosts(hosts, network)
    for name in clients:
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name in ("ca", "broker"):
            raise CommandError(f"{name!r} cannot be used as a file name.", USAGE)
    try:
        from headrace.env.certificates import make_certificate
    except ImportError:
        raise CommandError(
            "Certificates need a package that is not installed here: cryptography.",
            FAILED,
            "Install it with: pip install 'headrace[security]'",
        ) from None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        authority, is_new = _authority(directory, days)
        marked = "" if network else f"# {FOR_THIS_MACHINE}\n"
        _write(directory / "broker.pem", marked + make_certificate(authority, "broker", hosts, days).store)
        for name in clients:
            _write(directory / f"{name}.pem", make_certificate(authority, name, days=days).store)
    except OSError as error:
        raise CommandError(f"Cannot write {error.filename}: {error.strerror}.") from None
    except ValueError as error:
        raise CommandError(f"{directory / 'ca.pem'} and ca.key cannot be used: {error}.") from None
    made = ", ".join([*(["ca.pem"] if is_new else []), "broker.pem", *(f"{name}.pem" for name in clients)])
    signed = "" if is_new else ", signed by the existing CA"
    note(
        f"Made {made} in {directory}, valid for {days} days{signed}. Use them only for testing, and keep "
        "ca.key secret."
    )


def _check_hosts(hosts: tuple[str, ...], network: bool) -> None:
    outside = [host for host in hosts if not _is_local(host)]
    if outside and not network:
        raise CommandError(
            f"{outside[0]} is not this machine. These certificates are for testing: on a network, use "
            "those of your own CA, or add --network to create these anyway.",
            USAGE,
        )


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _authority(directory: Path, days: int) -> tuple[Certificate, bool]:
    """The CA of the directory, and whether it was created now."""
    from headrace.env.certificates import make_authority, read_certificate, renewed_authority

    certificate, key = directory / "ca.pem", directory / "ca.key"
    if certificate.exists() and key.exists():
        kept = read_certificate(certificate.read_bytes(), key.read_bytes())
        if kept.ends_within(days):
            kept = renewed_authority(kept, days)
            _replace(certificate, kept.pem, 0o644)
            note(f"Renewed the CA with the same key: give the new {certificate} to all clients.")
        return kept, False
    made = make_authority(AUTHORITY, days)
    _write(key, made.key)
    certificate.write_text(made.pem)
    return made, True


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    _replace(path, text, 0o600)


def _replace(path: Path, text: str, mode: int) -> None:
    """Replace the file atomically: a broker may read it at any moment."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    beside.rename(path)
