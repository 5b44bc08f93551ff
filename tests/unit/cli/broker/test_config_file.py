"""Files as pairs of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.broker.config_file import read_config_file
from headrace.cli.broker.settings import SettingsError, load_config

PAIRS = {
    "num.partitions": "3",
    "auto.create.topics.enable": "true",
    "log.dirs": "a,b",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "broker.rack": "größer",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "server.properties",
            "num.partitions=3\nauto.create.topics.enable=true\nlog.dirs=a,b\n"
            "log.cleaner.min.cleanable.ratio=0.5\nbroker.rack=größer\n",
        ),
        (
            "headrace.toml",
            'num.partitions = 3\nauto.create.topics.enable = true\nlog.dirs = ["a", "b"]\n'
            '"log.cleaner.min.cleanable.ratio" = 0.5\n[broker]\nrack = "größer"\n',
        ),
    ],
)
def test_both_kinds_say_the_same(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert read_config_file(path).pairs == PAIRS


def test_latin_1_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=größer".encode("latin-1"))
    assert read_config_file(path).pairs == {"broker.rack": "größer"}


def test_every_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=abc\n# a comment\nlog.retention.hours=\\\nsoon\nno.such.thing=1\n")
    with pytest.raises(SettingsError) as refused:
        load_config(path, {})
    lines = refused.value.message.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [f"{path}, line {number}" for number in (1, 3, 5)]
    assert "num.partitions" in lines[0]
    assert "log.retention.hours" in lines[1]
    assert "no.such.thing" in lines[2]


def test_a_mistake_on_the_command_line_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\n")
    with pytest.raises(SettingsError) as refused:
        load_config(path, {"num.partitions": "many"})
    assert str(path) not in refused.value.message


@pytest.mark.parametrize("name", ["auto.include.jmx.reporter", "confluent.license.topic.replication.factor"])
def test_settings_of_kafka_that_mean_nothing_here_are_warnings(name: str, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"{name}=1\n")
    assert any(name in warning for warning in load_config(path, {}).warnings)
