"""A short run of every fuzz target; `python -m headrace.testing.fuzz --frames N` is the long one."""

from __future__ import annotations

import random

import pytest

from headrace.handlers.registry import APIS
from headrace.testing import fuzz
from headrace.wire import primitives

FRAMES = 15_000


def test_decoders_raise_nothing_but_our_own_errors() -> None:
    """Requests of every API and version, responses, record batches of every codec."""
    understood = fuzz.fuzz_decoders(seed=20, count=FRAMES)
    assert 0 < understood < FRAMES


def test_seeds_are_valid_and_cover_every_version() -> None:
    seeds = fuzz.seeds(random.Random(3))
    assert all(fuzz.decode(seed.frame) for seed in seeds if (seed.key, seed.version) != (0, 0) and seed.key != 0)
    covered = {(seed.key, seed.version) for seed in seeds}
    assert {(key, version) for key, api in APIS.items() for version in api.versions} <= covered


def test_a_decoder_that_lets_an_error_escape_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The validity of the test: without the check of lengths something else comes out."""

    def careless(self: primitives.Cursor, size: int) -> bytes:
        data = bytes(self.buffer[self.position : self.position + size])
        if len(data) < size:
            raise IndexError(size)
        self.position += size
        return data

    monkeypatch.setattr(primitives.Cursor, "take", careless)
    with pytest.raises(IndexError):
        fuzz.fuzz_decoders(seed=20, count=FRAMES)
