"""The wheel in a clean environment: few and small packages, and what a newcomer does first works (R-OPS-1)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing.process import free_port

ROOT = Path(__file__).resolve().parents[2]
MOST_WHEELS = 20
MOST_BYTES = 10 * 1024**2


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Headrace and what it needs, as wheels; whatever has none would have to be compiled."""
    directory = tmp_path_factory.mktemp("wheels")
    pip("wheel", str(ROOT), "--wheel-dir", str(directory), "--constraint", str(ROOT / "constraints.txt"))
    return directory


@pytest.fixture(scope="module")
def environment(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=200)
    python = str(place / "bin" / "python")
    pip("--python", python, "install", "--no-index", "--find-links", str(wheels), "--no-compile", "headrace")
    return place


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_light(wheels: Path) -> None:
    found = sorted(wheels.iterdir())
    assert all(path.suffix == ".whl" for path in found)
    assert len(found) <= MOST_WHEELS
    assert sum(path.stat().st_size for path in found) <= MOST_BYTES
    (ours,) = (path for path in found if path.name.startswith("headrace-"))
    assert ours.name.endswith("-py3-none-any.whl"), "nothing of ours is compiled"


def test_what_a_newcomer_does_first(environment: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    variables = {
        "PATH": f"{environment}/bin{os.pathsep}{os.environ['PATH']}",
        "HEADRACE_BOOTSTRAP_SERVERS": address,
        "HEADRACE_LISTENERS": f"PLAINTEXT://{address}",
    }

    def run(*command: str, given: str = "") -> str:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
            cwd=tmp_path,
            env=variables,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("headrace", "--version") == run("python", "-m", "headrace", "--version")
    assert f"is ready at {address}" in run("headrace", "start", "--daemon")
    try:
        run("headrace", "topic", "create", "greetings")
        run("headrace", "topic", "produce", "greetings", given="hello\n")
        assert run("headrace", "topic", "consume", "greetings", "-e", "-f", "%s") == "hello"
        assert "greetings" in run("headrace", "topic", "list", "--format", "yaml")
    finally:
        run("headrace", "stop")
    run("python", "-c", "from headrace.testing import Broker\nwith Broker() as b: b.create_topic('t')")
