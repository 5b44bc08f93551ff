"""Archives and Delta tables in an S3-compatible server. Needs `pip install 'moto[server]'`, which is optional."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyarrow import fs

from headrace.spark.archive import manifest as m
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.replaying import Replay, ReplayPlan
from headrace.spark.archive.slices import Slice
from headrace.spark.archive.store import LOCK, ArchiveStore
from headrace.spark.archive.verifying import Verifier
from tests.processes.spark.archive.archives import archived, connect, make_archive
from tests.spark.topics import Topics

moto_server: Any = pytest.importorskip(
    "moto.server", reason="the S3 server of moto is not installed: pip install 'moto[server]'"
)
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}
BUCKET = "archives"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {**KEYS, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        system = fs.S3FileSystem(
            endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        system.create_dir(BUCKET)
        yield f"{host}:{port}"
    finally:
        server.stop()


def test_an_archive_in_object_storage(bootstrap: str, endpoint: str) -> None:
    topics = Topics(bootstrap)
    name, copy = topics.create(partitions=2), topics.new_name()
    topics.send(name, [f"v{number}" for number in range(500)], keys=[f"k{number % 50}" for number in range(500)])
    where = f"s3://{BUCKET}/some/place?endpoint_override={quote(endpoint)}&scheme=http&region=us-east-1"
    store = make_archive(where, bootstrap, [name], file_bytes=1)
    assert archived(store, bootstrap).rows == 500
    topics.send(name, ["new"])
    assert archived(store, bootstrap).rows == 1
    assert not store.names(m.STAGED)
    result = Verifier(ArchiveStore.open(where), connect(bootstrap)).verify()
    assert (result.compared, result.problems) == (501, [])
    work = Replay(ArchiveStore.open(where), connect(bootstrap), ReplayPlan(Slice(name), copy))
    work.prepare()
    assert work.run().written == 501
    assert [(one.key, one.value) for one in topics.read(copy, range(2))] == [
        (one.key, one.value) for one in topics.read(name, range(2))
    ]
    with store.writing():
        store.write(LOCK, b"somebody else")
        with pytest.raises(ArchiveError, match="Another run"):
            m.commit(store, m.load(store), m.Commit(m.load(store).number + 1, "", {}, ()))


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize("settings", ["options", "environment"])
def test_a_delta_table_in_object_storage(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, scheme: str, settings: str
) -> None:
    """`s3a` is what Spark's own formats call it; settings may also be where every other tool looks for them."""
    from headrace.spark.delta.reading import FileReading, snapshot
    from headrace.spark.delta.table import TableOptions
    from headrace.spark.delta.writing import TableWriting

    storage = {**KEYS, "AWS_ENDPOINT_URL": f"http://{endpoint}", "AWS_ALLOW_HTTP": "true"}
    if settings == "environment":
        for name, value in storage.items():
            monkeypatch.setenv(name, value)
        storage = {}
    options = TableOptions(f"{scheme}://{BUCKET}/table", app_id="app", storage=storage)
    schema = pa.schema([pa.field("id", pa.int64())])
    writing = TableWriting(options, schema)
    for version in (0, 0, 1):
        writing.commit([writing.write(iter([pa.RecordBatch.from_pydict({"id": [version]}, schema)]))], version)
    reading = FileReading(options, schema)
    found = [
        row["id"] for file in snapshot(options, None) for rows in reading.read(file) for row in rows.to_pylist()
    ]
    assert sorted(found) == [0, 1]
