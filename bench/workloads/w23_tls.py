"""W23: what TLS costs the broker, produced and consumed, beside the same without it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.clients import librdkafka
from bench.measure import Measurement
from bench.registry import workload
from bench.run import Run
from bench.shapes import KB, MB, PARTITIONS
from bench.systems import ProductionKafka
from headrace.env.certificates import make_authority, make_certificate
from headrace.testing.process import HOST, free_port

SIZE = 10 * KB
WARM_UP_RECORDS = 12_000


@workload("W23", "TLS", own_system=True)
def tls(run: Run) -> Iterator[Measurement]:
    """A broker with a plain and a TLS listener (1.3, a certificate on P-256, no client certificates). librdkafka
    produces 512 MB in records of 10 KB and batches of up to 1 MB, and consumes them, over each. Warmed up before
    with 120 MB on each way."""
    with tempfile.TemporaryDirectory() as directory:
        port, ca = open_listeners(run, Path(directory))
        run.system.start()
        addresses = {"plain": run.system.bootstrap, "TLS": f"{HOST}:{port}"}
        records = run.choose(512, 64) * MB // SIZE
        for way, address in addresses.items():
            transfer(run, way, address, ca, run.choose(WARM_UP_RECORDS, 1_000))
        for way, address in addresses.items():
            yield from transfer(run, way, address, ca, records)


def open_listeners(run: Run, folder: Path) -> tuple[int, Path]:
    """The port with TLS, and who signed its certificate."""
    authority = make_authority("bench")
    (folder / "ca.pem").write_text(authority.pem)
    (folder / "broker.pem").write_text(make_certificate(authority, "broker", (HOST,)).store)
    server, port = run.system.server, free_port()
    listeners = [f"PLAINTEXT://{HOST}:{server.port}", f"SSL://{HOST}:{port}"]
    if isinstance(server, ProductionKafka):
        listeners.append(f"CONTROLLER://{HOST}:{server.controller_port}")
        server.overrides["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
    server.overrides |= {
        "listeners": ",".join(listeners),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
    }
    return port, folder / "ca.pem"


def transfer(run: Run, way: str, address: str, ca: Path, records: int) -> list[Measurement]:
    topic = run.topic(PARTITIONS)
    options: dict[str, int | str] = {"records": records, "size": SIZE, "partitions": PARTITIONS}
    if way == "TLS":
        options["ca"] = str(ca)
    found = [
        run.measure_client(
            f"{mode}, {way}",
            SIZE,
            lambda mode=mode: librdkafka(mode, address, topic, **options),  # type: ignore[misc]
        )
        for mode in ("produce", "consume")
    ]
    run.drop_topics()
    return found
