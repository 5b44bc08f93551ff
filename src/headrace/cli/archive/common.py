"""What the commands about archives share: opening one, and explaining errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from headrace.cli.common.errors import explain_client, explain_kafka, sentence
from headrace.cli.common.failure import FAILED, NOT_FOUND, CommandError, said_by
from headrace.cli.common.login import asked_security
from headrace.cli.common.options import Target
from headrace.cli.common.screen import Screen
from headrace.client.errors import ClientError
from headrace.model.errors import KafkaError

if TYPE_CHECKING:
    from headrace.spark.archive.store import ArchiveStore
    from headrace.spark.client.cluster import BlockingCluster

CLIENT_ID = "headrace-archive"
CONNECT_TIMEOUT_S = 5.0

archive_argument = click.argument("archive", metavar="ARCHIVE")


def open_store(archive: str) -> ArchiveStore:
    """Open the archive that a command was given: a folder, or an address."""
    missing = [name for name in ("pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"Archives need packages that are not installed here: {', '.join(missing)}.",
            FAILED,
            "Install them with: pip install 'headrace[spark]'",
        )
    from headrace.spark.archive.store import ArchiveStore

    return ArchiveStore.open(archive)


@contextmanager
def cluster_of(target: Target) -> Iterator[BlockingCluster]:
    from headrace.spark.client.cluster import BlockingCluster, ClusterSettings

    bootstrap = ",".join(map(str, target.bootstrap))
    connect_s = min(CONNECT_TIMEOUT_S, target.timeout_s)
    cluster = BlockingCluster(
        ClusterSettings(bootstrap, CLIENT_ID, target.timeout_s, connect_s, security=asked_security())
    )
    try:
        yield cluster
    finally:
        cluster.close()


@contextmanager
def told_errors() -> Iterator[None]:
    """Turn errors of an archive, a cluster or a disk inside the block into a sentence."""
    from headrace.spark.archive.errors import ArchiveError, ArchiveMissing
    from headrace.spark.client.fetching import RangeUnavailable

    try:
        yield
    except ArchiveError as error:
        code = NOT_FOUND if isinstance(error, ArchiveMissing) else FAILED
        raise CommandError(error.message, code, error.advice) from None
    except KafkaError as error:
        raise explain_kafka(error) from None
    except ClientError as error:
        raise explain_client(error) from None
    except (RangeUnavailable, OSError) as error:
        raise CommandError(sentence(said_by(error)), FAILED) from None


class ProgressLine:
    """One line that is redrawn on a terminal; nothing is shown elsewhere."""

    def __init__(self) -> None:
        self._screen = Screen(err=True) if sys.stderr.isatty() else None

    def draw(self, text: str) -> None:
        if self._screen is not None:
            self._screen.draw([text])


def percent(done: int, total: int) -> str:
    return f"{100 * done // total}%" if total else "100%"
