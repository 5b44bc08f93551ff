"""Files as pairs of text."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.broker.config_file import read_config_file

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
    assert read_config_file(path) == PAIRS


def test_latin_1_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=größer".encode("latin-1"))
    assert read_config_file(path) == {"broker.rack": "größer"}
