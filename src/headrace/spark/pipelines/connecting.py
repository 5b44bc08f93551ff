"""How a pipeline connects to a secured cluster.

`client:` of the file, or `--client-config` of a command, has the settings of a Kafka client: `security.protocol`,
`sasl.*`, `ssl.*`. Sources and sinks get them as options, unless they have security options of their own. The
runner's own requests (topics to check and create, offsets) and dead letters use the same settings, or those of the
first source or sink if only these have some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from headrace.client.connection import ClientSettings
from headrace.spark.client.connection import ClusterSettings
from headrace.spark.option_table import GivenOptions
from headrace.spark.pipelines.definition import Pipeline, Sink, Source
from headrace.spark.security_options import PREFIX, SECURITY_PREFIXES, parse_security

EndT = TypeVar("EndT", Source, Sink)


def security_of(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a source or a sink that say how to connect."""
    return {name: value for name, value in options.items() if name.lower().startswith(SECURITY_PREFIXES)}


def client_options(client: Mapping[str, str]) -> dict[str, str]:
    """Settings of a client as options of source and sink; what is not about security has no effect."""
    return security_of({PREFIX + name: value for name, value in client.items()})


def connected(pipeline: Pipeline, client: Mapping[str, str]) -> Pipeline:
    """The pipeline with `client` for all its connections, topic by topic."""
    options = client_options(client)
    if not options:
        return pipeline
    sources = tuple(_with(source, options) if source.kind != "files" else source for source in pipeline.sources)
    sinks = tuple(_with(sink, options) if sink.kind == "topic" else sink for sink in pipeline.sinks)
    return replace(pipeline, client=dict(client), sources=sources, sinks=sinks)


def _with(end: EndT, options: Mapping[str, str]) -> EndT:
    return end if security_of(end.options) else replace(end, options={**options, **end.options})


def connection_options(pipeline: Pipeline) -> dict[str, str]:
    """The connection options for requests that belong to no source or sink."""
    found = [client_options(pipeline.client), *(security_of(end.options) for end in pipeline.ends)]
    return next((options for options in found if options), {})


def cluster_settings(pipeline: Pipeline, bootstrap: str, **more: Any) -> ClusterSettings:
    """The settings for the runner's own requests. Raises `OptionError`."""
    return ClusterSettings(bootstrap, security=parse_security(GivenOptions(connection_options(pipeline))), **more)


def client_settings(pipeline: Pipeline) -> ClientSettings:
    """The settings for the asyncio client, which connectors use."""
    security = parse_security(GivenOptions(connection_options(pipeline)))
    return ClientSettings() if security is None else ClientSettings(login=security.login, tls=security.context)
