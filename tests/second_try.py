"""A second try for the few tests that wait for foreign processes: `make test` passes `--second-try`.

Among 11,000 tests that start brokers, JVMs and clients of other projects, one in some runs fails for a reason
outside of the code: a machine that stood still, a client that batched differently. Up to `MOST` such tests run
once more, alone, in a process of their own. Nothing about it is silent: both outputs are printed, and the end of
the run names every test that needed its second try, for somebody to mend it.

Unit tests, the simulation and every file that counts lost, doubled or misplaced records (`FIRST_COUNTS`) fail the
run at once: a promise that is broken in one run of a hundred is broken.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST = 3
FIRST_COUNTS = (
    "tests/cluster/test_crash.py",
    "tests/cluster/test_drills.py",
    "tests/cluster/test_exactly_once.py",
    "tests/cluster/test_full_disk.py",
    "tests/compat/test_delivery.py",
    "tests/compat/test_reconnect.py",
    "tests/contract/",
    "tests/golden/",
    "tests/processes/spark/",
    "tests/sim/",
    "tests/spark/test_exactly_once_sink.py",
    "tests/spark/test_restart.py",
    "tests/test_tidy.py",
    "tests/unit/",
)


def worth_another(failed: list[str]) -> bool:
    return 0 < len(failed) <= MOST and not any(test.startswith(FIRST_COUNTS) for test in failed)


class SecondTry:
    """Registered where the run is put together, not in xdist's workers."""

    def __init__(self) -> None:
        self._failed: list[str] = []
        self._passed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self._failed:
            self._failed.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED and worth_another(self._failed):
            print(f"\n\nA second try, alone: {' '.join(self._failed)}", flush=True)
            self._passed = subprocess.run(again(self._failed), check=False).returncode == 0
            if self._passed:
                session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._passed:
            terminalreporter.section("UNSTEADY: these passed only on their second try; find out why")
            for test in self._failed:
                terminalreporter.line(test)


def again(tests: list[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests]
