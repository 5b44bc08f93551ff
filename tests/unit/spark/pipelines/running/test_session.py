"""Which Java is found, and what a session is given. No Java runs here."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from headrace.spark.pipelines.running.session import (
    NoJava,
    NoMaster,
    check_master,
    find_java,
    java_version,
    session_defaults,
    shuffle_partitions,
    with_java_options,
)


def install(home: Path, version: str | None, *, says: str | None = None) -> Path:
    """A folder like that of a Java. Without a version its release file is missing, as Debian's can be."""
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{says}\"' >&2\n" if says else "#!/bin/sh\nexit 1\n")
    command.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25), ("", None)]
)
def test_versions(text: str, version: int | None) -> None:
    assert java_version(text) == version


def test_java_home_comes_first_then_the_path_then_the_folders(tmp_path: Path) -> None:
    named = install(tmp_path / "named", "21.0.1")
    on_path = install(tmp_path / "path", None, says="17.0.2")
    folder = tmp_path / "jvm"
    install(folder / "b-25", "25")
    oldest_good = install(folder / "a-17", "17.0.9")
    install(folder / "c-11", "11.0.2")
    environment = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java(environment, [folder]) == (named, 21)
    assert find_java({"PATH": str(on_path / "bin")}, [folder]) == (on_path, 17)
    assert find_java({}, [folder]) == (oldest_good, 17)


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = install(tmp_path / "old", "11.0.2")
    good = install(tmp_path / "jvm" / "good", "17")
    assert find_java({"JAVA_HOME": str(old)}, [tmp_path / "jvm"]) == (good, 17)


def test_what_is_said_when_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match="Java 17 or newer, but none was found") as none:
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path)}, [tmp_path])
    assert "openjdk-17" in none.value.advice
    old = install(tmp_path / "jvm" / "old", "1.8.0_392")
    install(tmp_path / "jvm" / "broken", None)
    with pytest.raises(NoJava, match=f"only Java 8 was found \\({old}\\)"):
        find_java({}, [tmp_path / "jvm"])


def test_defaults_of_one_machine_do_not_go_to_a_cluster() -> None:
    assert session_defaults("local[2]")["spark.sql.shuffle.partitions"] == "4"
    cluster = session_defaults("spark://host:7077")
    assert cluster["spark.sql.session.timeZone"] == "UTC"
    assert not {"spark.sql.shuffle.partitions", "spark.driver.host", "spark.ui.enabled"} & cluster.keys()


@pytest.mark.parametrize(
    ("cores", "partitions_read", "expected"),
    [(1, 0, 4), (2, 3, 4), (16, 3, 16), (2, 12, 12), (400, 12, 200), (8, 1000, 200)],
)
def test_shuffles_are_as_wide_as_the_cluster_or_what_is_read(
    cores: int, partitions_read: int, expected: int
) -> None:
    assert shuffle_partitions(cores, partitions_read) == expected


def test_a_master_that_does_not_answer_is_told_at_once() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        nobody = f"spark://127.0.0.1:{port}"
        with pytest.raises(NoMaster, match=f"^no Spark master answers at {nobody}: connection refused$"):
            check_master(nobody)
        listening.listen()
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    for other in ("local[*]", "yarn", "k8s://https://host:443", ""):
        check_master(other)


@pytest.mark.parametrize("master", ["spark://host", "spark://", "spark://host:port"])
def test_an_address_without_a_port_is_none(master: str) -> None:
    with pytest.raises(NoMaster, match="spark://HOST:PORT"):
        check_master(master)


def test_the_options_that_a_user_gives_java_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java takes the last of two that contradict each other."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
    with with_java_options("-Xmx2g -Xshare:auto"):
        assert os.environ["SPARK_SUBMIT_OPTS"] == "-Xmx2g -Xshare:auto -Xmx1g"
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Xmx1g"
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    with with_java_options("-Xmx2g"):
        assert os.environ["SPARK_SUBMIT_OPTS"] == "-Xmx2g"
    assert "SPARK_SUBMIT_OPTS" not in os.environ
