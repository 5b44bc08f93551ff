"""About a minute of seeds: whole clusters under seeded faults, all invariants looked at; `make sim` has more.

Each block is a process of its own, so that no hash order or leftover of another test gets into a run.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BLOCK = 5
BLOCKS = 6


def simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.testing.sim", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_block_of_seeds_is_clean(block: int) -> None:
    ran = simulate("--first", str(1 + block * BLOCK), "--seeds", str(BLOCK), "--workers", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.timeout(300)
def test_a_seed_replays_byte_for_byte() -> None:
    first, second = (simulate("--seed", "14", "-v") for _ in range(2))
    assert first.stdout == second.stdout
    assert "digest" in first.stdout
