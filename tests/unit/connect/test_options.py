"""What a connector declares is checked before it runs."""

from __future__ import annotations

import pytest

from headrace.connect.options import ConfigOption, ConfigProblems, parse_config

OPTIONS = (
    ConfigOption("name", "text", "What it is called.", required=True),
    ConfigOption("count", "whole number", "How many.", 3, minimum=1),
    ConfigOption("fast", "flag", "Whether to hurry.", False),
    ConfigOption("parts", "list", "Which."),
    ConfigOption("types", "mapping", "Of what type."),
    ConfigOption("wait", "duration", "How long.", "1m"),
    ConfigOption("limit", "size", "How much.", "64KiB"),
    ConfigOption("mode", "text", "How.", "slow", choices=("slow", "quick")),
)


def problems(**given: object) -> tuple[str, ...]:
    with pytest.raises(ConfigProblems) as found:
        parse_config(OPTIONS, given)
    return found.value.problems


def test_defaults() -> None:
    config = parse_config(OPTIONS, {"name": "x"})
    assert config.text("name") == "x"
    assert config.number("count") == 3
    assert config.flag("fast") is False
    assert config.texts("parts") == ()
    assert config.table("types") == {}
    assert config.seconds("wait") == 60.0
    assert config.number("limit") == 65536
    assert "parts" not in config
    assert "count" in config


def test_every_kind() -> None:
    config = parse_config(
        OPTIONS,
        {
            "name": 5,
            "count": "7",
            "fast": "yes",
            "parts": "a, b",
            "types": {"id": "bigint"},
            "wait": "500ms",
            "limit": "2MB",
            "mode": "quick",
        },
    )
    assert config.text("name") == "5"
    assert config.number("count") == 7
    assert config.flag("fast") is True
    assert config.texts("parts") == ("a", "b")
    assert config.table("types") == {"id": "bigint"}
    assert config.seconds("wait") == 0.5
    assert config.number("limit") == 2_000_000
    assert config.text("mode") == "quick"


def test_everything_that_is_wrong_is_told_at_once() -> None:
    assert problems(count=0, fast="perhaps", wait="soon", mode="medium", nmae="x") == (
        "there is no option nmae: did you mean name?",
        "name is missing: what it is called",
        "count: 0 is less than 1",
        "fast: 'perhaps' is neither true nor false",
        "wait: 'soon' is not a duration; write 500ms, 30s, 10m or 2h",
        "mode: 'medium' is not one of slow, quick",
    )
    assert problems(name="x", count="many", parts={"a": 1}, types=[1], limit="big") == (
        "count: 'many' is not a whole number",
        "parts: it must be a list",
        "types: it must be a mapping: name: value",
        "limit: 'big' is not a size; write 500, 64k, 10MB or 5GiB",
    )
