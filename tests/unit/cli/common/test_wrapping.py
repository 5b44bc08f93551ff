"""Sentences are broken between words on a terminal, and nowhere else."""

from __future__ import annotations

import io
import os

from headrace.cli.common.wrapping import for_stream, wrapped


def test_lines_are_broken_between_words_and_commands_stay_whole() -> None:
    assert wrapped("short", 10) == "short"
    assert wrapped("one two three four", 10) == "one two\nthree four"
    assert wrapped("  -> one two three", 12, hanging=3) == "  -> one two\n     three"
    assert wrapped("Run `headrace topic list` first.", 14) == "Run\n`headrace topic list`\nfirst."
    assert wrapped("kept\n\n  unbreakable-word x", 10) == "kept\n\n  unbreakable-word\n  x"
    assert wrapped("消息消息 消息", 10) == "消息消息\n消息"


def test_what_is_no_terminal_gets_whole_sentences() -> None:
    text = "a sentence " * 50
    assert for_stream(text, io.StringIO()) == text
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        assert for_stream(text, pipe) == text
