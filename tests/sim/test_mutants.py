"""Each deliberate defect is found within the number of seeds that `mutants` states."""

from __future__ import annotations

import pytest

from headrace.testing.sim.mutants import MUTANTS
from tests.sim.test_seeds import simulate


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_is_found(name: str) -> None:
    ran = simulate("--mutant", name, "--workers", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "found with seed" in ran.stdout
