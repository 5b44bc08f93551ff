"""Runs the connectors of pipelines beside Spark, for as long as the pipelines run.

A source's connector feeds the topic that the pipeline reads, a sink's reads the one that it writes. When pipelines
process existing records and end, the sources' connectors do so first, and the sinks' last.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.client.address import parse_bootstrap
from headrace.client.admin import NewTopic
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.connect.api import ConnectorError, Source, TryAgain
from headrace.connect.definition import ConnectorDefinition, load_file
from headrace.connect.login import with_client
from headrace.connect.options import ConfigProblems
from headrace.connect.runner import Runner
from headrace.connect.store import ensure_topic
from headrace.env.real import real_env
from headrace.model.errors import KafkaError
from headrace.spark.pipelines.connecting import client_settings
from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.pipelines.definition import Sink as PipelineSink
from headrace.spark.pipelines.definition import Source as PipelineSource

FAILURES = (ConnectorError, ConfigProblems, TryAgain, OSError, KafkaError, ClientError)
BootstrapOf = Callable[[Pipeline], str]


class Way(NamedTuple):
    """How to connect to the cluster of a pipeline."""

    bootstrap: str
    settings: ClientSettings

    def cluster(self) -> Cluster:
        return Cluster(real_env(), parse_bootstrap(self.bootstrap), self.settings)


class ConnectorFailed(Exception):
    """A connector of a pipeline has ended with an error, and the pipelines with it."""


@contextmanager
def connectors_beside(
    pipelines: Sequence[Pipeline], bootstrap_of: BootstrapOf, stop: threading.Event, once: bool
) -> Iterator[None]:
    """Runs connectors inside the block. A connector that fails sets `stop`, and the end of the block raises its
    error.
    """
    sources = _named(pipelines, bootstrap_of, lambda pipeline: pipeline.sources)
    sinks = _named(pipelines, bootstrap_of, lambda pipeline: pipeline.sinks)
    if not (sources or sinks):
        yield
        return
    asyncio.run(_explained(_make_topics(pipelines, bootstrap_of)))
    if once:
        asyncio.run(_explained(_run_once(sources)))
        yield
        if not stop.is_set():
            asyncio.run(_explained(_run_once(sinks)))
        return
    running = _Running([*sources, *sinks], stop)
    try:
        yield
    finally:
        running.end()
    if running.failure is not None:
        raise running.failure


_Named = tuple[ConnectorDefinition, Way]
"""A connector, and the cluster that it works with."""


def _named(
    pipelines: Sequence[Pipeline],
    bootstrap_of: BootstrapOf,
    parts: Callable[[Pipeline], Sequence[PipelineSource | PipelineSink]],
) -> list[_Named]:
    """The connectors of pipelines, each file once, however many parts name it."""
    found: dict[str, Way] = {}
    for pipeline in pipelines:
        for part in parts(pipeline):
            if part.connector is not None:
                found.setdefault(part.connector, _way(pipeline, bootstrap_of))
    return [_own(load_file(Path(file)), way) for file, way in found.items()]


def _own(definition: ConnectorDefinition, way: Way) -> _Named:
    """A connector with its own connection settings, if it has some, as a source or a sink does."""
    return definition, way._replace(settings=with_client(way.settings, definition.client))


def _way(pipeline: Pipeline, bootstrap_of: BootstrapOf) -> Way:
    return Way(bootstrap_of(pipeline), client_settings(pipeline))


async def _make_topics(pipelines: Sequence[Pipeline], bootstrap_of: BootstrapOf) -> None:
    """Create the topics between connectors and pipelines: either side may be the first to need them."""
    for pipeline in pipelines:
        async with _way(pipeline, bootstrap_of).cluster() as cluster:
            for source in pipeline.sources:
                if source.connector is not None:
                    definition = load_file(Path(source.connector))
                    assert isinstance(definition.connector, Source)
                    new = definition.new_topics
                    for topic in source.topics:
                        configs = {**definition.connector.topic_configs(topic), **new.configs}
                        await ensure_topic(cluster, NewTopic(topic, new.partitions, new.replication, configs))
            for sink in pipeline.sinks:
                if sink.connector is not None and sink.create is not None:
                    shape = sink.create
                    made = NewTopic(sink.topic, shape.partitions, shape.replication, shape.config)
                    await ensure_topic(cluster, made)


async def _run_once(named: Sequence[_Named]) -> None:
    for definition, way in named:
        async with way.cluster() as cluster:
            await Runner(cluster, definition, once=True).run()


async def _explained(work: Awaitable[None]) -> None:
    try:
        await work
    except FAILURES as error:
        raise ConnectorFailed(str(error)) from error


class _Running:
    """All connectors, on a loop in a thread of its own."""

    def __init__(self, named: Sequence[_Named], stop: threading.Event) -> None:
        self.failure: BaseException | None = None
        self._named = named
        self._stop = stop
        self._loop = asyncio.new_event_loop()
        self._runners: list[Runner] = []
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="connectors", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end_runners)
        self._thread.join()
        self._loop.close()

    def _end_runners(self) -> None:
        self._ending = True
        for runner in self._runners:
            runner.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        work = asyncio.gather(*(self._run_one(*one) for one in self._named), return_exceptions=True)
        bugs = [one for one in self._loop.run_until_complete(work) if one is not None]
        if bugs:  # in the code of a connector: they are raised with their traceback, as without pipelines
            self.failure = bugs[0]

    async def _run_one(self, definition: ConnectorDefinition, way: Way) -> None:
        async with way.cluster() as cluster:
            runner = Runner(cluster, definition)
            self._runners.append(runner)
            if self._ending:
                runner.stop()
            try:
                await runner.run()
            except FAILURES as error:
                self.failure = self.failure or ConnectorFailed(f"connector {definition.name} failed: {error}")
            finally:  # any error: without the connector the pipelines would wait forever
                if not self._ending:
                    self._stop.set()
