"""Writes what comes from the code in docs/: settings, commands, APIs, errors, diagrams. Run by `make docs`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from headrace.cli.connector.show import shown_default
from headrace.cli.reference import commands_page
from headrace.config.broker_config import environment_name
from headrace.config.broker_settings import GROUPS
from headrace.config.group_config import GROUP_SETTINGS
from headrace.config.setting import ConfigType, Setting, UpdateMode
from headrace.config.settings import BROKER_NOT_ACTED_ON, NOT_ACTED_ON, TOPIC_SETTINGS
from headrace.connect.definition import SINK_OPTIONS, SOURCE_OPTIONS
from headrace.connect.options import ConfigOption
from headrace.connect.registry import find_connector
from headrace.groups.states import CONSUMER_NEXT, MEMBER_NEXT, NEXT, mermaid
from headrace.handlers import load_all
from headrace.handlers.registry import APIS
from headrace.model.errors import RETRIABLE, ErrorCode
from headrace.spark.options_page import options_page
from headrace.spark.pipelines.checking.option_names import OPTION_SECTIONS, SINK, SOURCE
from headrace.spark.pipelines.loading.keys import SECTIONS, Key

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTICE = "<!-- Written by scripts/gen_docs.py from the code: change it there, then run `make docs`. -->"

CONFIGURATION = f"""# Settings

{NOTICE}

Settings have Kafka's names, types and defaults; the deliberate differences are in [choices.md](choices.md). A
setting is taken from the first of these that has it:

1. a flag: `headrace start --override num.partitions=3`,
2. the environment: `HEADRACE_NUM_PARTITIONS=3` (`HEADRACE_`, then the name in capitals with `_` for `.`; the
   prefix `headrace.` of Headrace's own settings is left out),
3. the file named on the command line: `server.properties` in Java's syntax, or `headrace.toml` with the same keys,
4. the default below.

A name that Kafka knows and Headrace does not use is accepted with a warning, also by AlterConfigs where Kafka can
change it while it runs. An unknown name is an error that names the nearest one; in the environment it is a
warning, because container platforms set such variables.

Settings marked *Not acted on yet* are accepted, stored and shown, but have no effect in this version.
*Changes* says whether AlterConfigs can change a broker setting while the broker runs.
"""

TOPICS = """
## Topics

Given at CreateTopics or with AlterConfigs. A topic that does not set one takes it from the first of the broker
settings in the last column that has a value; a dynamic value wins there over one from the file.

| name | type | default | allowed | meaning | default comes from |
|---|---|---|---|---|---|
"""

GROUP_TABLE = """
## Groups

Of one consumer group (KIP-848), given with AlterConfigs under its id; the group need not exist yet. The broker's
`group.consumer.min.*` and `group.consumer.max.*` are the limits. Groups of the classic protocol have no settings.

| name | type | default | allowed | meaning | default comes from |
|---|---|---|---|---|---|
"""

APIS_PAGE = f"""# APIs

{NOTICE}

The requests that a broker supports, as it reports them in ApiVersions. Versions in parentheses are advertised,
because clients infer features from them, but refused.

| key | API | versions | what it does |
|---|---|---|---|
"""

ERRORS_PAGE = f"""# Error codes

{NOTICE}

Kafka's codes. After a retriable error the client can simply try again.

| code | name | retriable |
|---|---|---|
"""

PIPELINES_PAGE = f"""# Keys of a pipeline file

{NOTICE}

How to write a pipeline is in [pipelines.md](pipelines.md). `headrace pipeline check FILE` says what is wrong with
one, where, and what to do.

Names of sources and steps are views in SQL: letters, digits and `_`. Names of sinks may contain `-` too. Paths
are relative to the file; addresses such as `s3://...` stay as they are. A duration is `500ms`, `30s`, `10 minutes`
or `1h 30m`; a bare number is seconds. `${{NAME}}` and `${{NAME:-default}}` in a value are taken from the
environment; `$${{` means `${{`.
"""

PIPELINE_SECTIONS = {
    "A source": "Exactly one of `topic`, `topics`, `pattern`, `table` and `files`; `files` with `table: true`.",
    "A step": "`name`, one of the keys that say what it does, and `from` unless SQL names what it reads.",
    "A sink": "`from`, and exactly one of `topic`, `parquet` and `console`.",
}


_HADOOP = "Names with a dot that are not here go to Hadoop as they are (`fs.s3a.endpoint`)."
OPTIONS_SAID = {
    "Options of csv": "With `csv.` in front. Those of topics are in [spark-source.md](spark-source.md).",
    "Options of json": "With `json.` in front.",
    "Options of avro": "With `avro.` in front. The format `text` has none.",
    "Options of files": f"Of JSON, CSV and text, which are read by lines; beside those of the format. {_HADOOP}",
    "Options of Parquet files": f"Of a source. {_HADOOP}",
    "Options of a Parquet sink": _HADOOP,
    "Options of a Delta table that is read": "Of a source with `format: delta`; see [delta.md](delta.md).",
    "Options of a Delta sink": "Of a sink with `delta: path`.",
    "Options of the console": "Of a sink with `console: true`.",
}


DIAGRAMS = {
    "classic group": mermaid(NEXT),
    "consumer group": mermaid(CONSUMER_NEXT),
    "member": mermaid(MEMBER_NEXT),
}
_OPTIONS = re.compile(r"<!-- options: ([a-z-]+) -->\n.*?<!-- end -->\n", re.DOTALL)
_DIAGRAM = re.compile(r"<!-- diagram: ([a-z ]+) -->\n.*?<!-- end -->\n", re.DOTALL)


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "configuration.md": configuration_page(),
        "cli.md": commands_page(NOTICE),
        "apis.md": apis_page(),
        "errors.md": errors_page(),
        "pipeline-reference.md": pipeline_page(),
        "spark-source.md": options_page(NOTICE),
        "connectors.md": with_options((DOCS / "connectors.md").read_text(encoding="utf-8")),
        "groups.md": with_diagrams((DOCS / "groups.md").read_text(encoding="utf-8")),
    }


def with_diagrams(text: str) -> str:
    """A page written by hand, with the state diagrams in their places."""

    def drawn(match: re.Match[str]) -> str:
        return f"<!-- diagram: {match[1]} -->\n```mermaid\n{DIAGRAMS[match[1]]}```\n<!-- end -->\n"

    return _DIAGRAM.sub(drawn, text)


def with_options(text: str) -> str:
    """The page about connectors, written by hand, with the options that they declare in their places."""

    def table(match: re.Match[str]) -> str:
        options = {"source": SOURCE_OPTIONS, "sink": SINK_OPTIONS}.get(match[1])
        rows = options if options is not None else find_connector(match[1]).options
        head = "| option | value | default | meaning |\n|---|---|---|---|\n"
        cells = (
            [f"`{one.name}`", ", ".join(one.choices) or one.kind, _option_default(one), one.meaning]
            for one in rows
        )
        return f"<!-- options: {match[1]} -->\n\n{head}{''.join(map(_row, cells))}\n<!-- end -->\n"

    return _OPTIONS.sub(table, text)


def _option_default(option: ConfigOption) -> str:
    if option.required:
        return "*required*"
    default = shown_default(option)
    return "" if default is None else f"`{default}`"


def configuration_page() -> str:
    parts = [CONFIGURATION]
    for title, settings in GROUPS.items():
        parts.append(
            f"\n## {title}\n\n| name | type | default | allowed | changes | meaning |\n|---|---|---|---|---|---|\n"
        )
        parts += [
            _row(_common(setting), _changes(setting), _meaning(setting, BROKER_NOT_ACTED_ON))
            for setting in settings
        ]
    parts.append(TOPICS)
    for setting in TOPIC_SETTINGS.values():
        if not setting.internal:
            synonyms = ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms)
            parts.append(_row(_common(setting), _meaning(setting, NOT_ACTED_ON), synonyms))
    parts.append(GROUP_TABLE)
    for setting in GROUP_SETTINGS.values():
        parts.append(_row(_common(setting), setting.doc, f"`{setting.synonyms[0].name}`"))
    parts.append(f"\nExample: `{environment_name('log.retention.hours')}=24` keeps records for a day.\n")
    return "".join(parts)


def apis_page() -> str:
    load_all()
    rows = []
    for api in sorted(APIS.values(), key=lambda api: api.key):
        versions = _span(api.versions.start, api.versions.stop - 1)
        if api.advertised_from < api.versions.start:
            versions += f" ({_span(api.advertised_from, api.versions.start - 1)})"
        rows.append(_row([str(api.key), api.name, versions], api.summary))
    return APIS_PAGE + "".join(rows)


def errors_page() -> str:
    return ERRORS_PAGE + "".join(
        _row([str(int(code)), f"`{code.name}`", "yes" if code in RETRIABLE else ""]) for code in ErrorCode
    )


def pipeline_page() -> str:
    parts = [PIPELINES_PAGE]
    for title, keys in SECTIONS.items():
        heading = f"`{title}`" if title.islower() else title
        said = f"{PIPELINE_SECTIONS[title]}\n\n" if title in PIPELINE_SECTIONS else ""
        parts.append(f"\n## {heading}\n\n{said}| key | value | default | meaning |\n|---|---|---|---|\n")
        parts += [_row([f"`{name}`", key.type, _default(key), key.meaning]) for name, key in keys.items()]
    for title, options in OPTION_SECTIONS.items():
        parts.append(f"\n## {title}\n\n{OPTIONS_SAID[title]}\n\n| option | default | meaning |\n|---|---|---|\n")
        only = {SOURCE: " Sources only.", SINK: " Sinks only."}
        parts += [_row([f"`{one.name}`", one.default, one.meaning + only.get(one.use, "")]) for one in options]
    return "".join(parts)


def _default(key: Key) -> str:
    return "*required*" if key.required else key.default


def _common(setting: Setting) -> list[str]:
    default = "" if setting.default is None else f"`{setting.default}`" if setting.default else "empty"
    return [f"`{setting.name}`", setting.type.name.lower(), default, _allowed(setting)]


def _allowed(setting: Setting) -> str:
    if setting.allowed:
        return ", ".join(setting.allowed)
    if setting.type is ConfigType.BOOLEAN:
        return "true, false"
    low, high = setting.minimum, setting.maximum
    if low is not None and high is not None:
        return f"{low} to {high}"
    return f"from {low}" if low is not None else ""


def _meaning(setting: Setting, not_acted_on: frozenset[str]) -> str:
    return f"{setting.doc} *Not acted on yet.*" if setting.name in not_acted_on else setting.doc


def _changes(setting: Setting) -> str:
    return {
        UpdateMode.READ_ONLY: "restart",
        UpdateMode.PER_BROKER: "per broker",
        UpdateMode.CLUSTER_WIDE: "running",
    }[setting.update_mode]


def _row(cells: Iterable[str], *more: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in [*cells, *more]) + " |\n"


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else str(first)


def main() -> None:
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
