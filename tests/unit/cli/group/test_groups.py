"""R-OPS-8: what the commands about groups understand, plan and draw, without a cluster."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from headrace.cli.common.failure import CommandError
from headrace.cli.common.offset_spec import END, START, Kind, Point
from headrace.cli.common.screen import Screen
from headrace.cli.group.change import OffsetMove, Shift, parse_where, summary
from headrace.cli.group.options import PartitionChoice, parse_choice
from headrace.cli.group.view import GroupView, GroupWithLag, MemberView, PositionView, assignment_text, by_topic
from headrace.cli.group.watch import LagWatch, chart
from headrace.cli.kafka_tools.consumer_groups import parse_datetime, parse_iso_duration, read_plan
from headrace.client.address import Address
from headrace.model.topics import TopicPartition
from tests.unit.cli.command_line import headrace
from tests.unit.cli.test_mistakes import UNUSED

NOW_MS = 1_700_000_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = MemberView("m-1", None, "app", "/10.0.0.1", (T0,))


def group(*positions: PositionView, members: tuple[MemberView, ...] = ()) -> GroupWithLag:
    view = GroupView("g", "classic", "Stable", "range", 1, Address("host", 9092), members)
    return GroupWithLag(view, positions)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("earliest", START),
        ("start", START),
        ("latest", END),
        ("end", END),
        ("42", Point(Kind.OFFSET, 42)),
        ("+5", Shift(5)),
        ("-5", Shift(-5)),
        ("@-10m", Point(Kind.TIME, NOW_MS - 600_000)),
        ("@1700000000", Point(Kind.TIME, 1_700_000_000_000)),
    ],
)
def test_where_to_move(text: str, where: Point | Shift) -> None:
    assert parse_where(text, NOW_MS) == where


@pytest.mark.parametrize(
    ("text", "problem"),
    [("soon", "not a valid position"), ("1:2", "not a valid position"), ("@soon", "not a valid time")],
)
def test_no_place_to_move(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_where(text, NOW_MS)


def test_which_partitions() -> None:
    assert parse_choice("orders") == PartitionChoice("orders", ())
    assert parse_choice("orders:0,2") == PartitionChoice("orders", (0, 2))
    for text in ("", ":1", "orders:", "orders:a", "orders:1,", "orders:1:2"):
        with pytest.raises(ValueError, match="not of the form"):
            parse_choice(text)


def test_what_a_move_means() -> None:
    assert summary([OffsetMove(T0, 10, 4, 0, 20), OffsetMove(T1, 5, 8, 0, 20)]) == (
        "6 records will be read again, 3 records will be skipped"
    )
    assert summary([OffsetMove(T0, None, 4, 0, 20)]) == "1 new offset"
    assert summary([OffsetMove(T0, 4, 4, 0, 20)]) == "nothing changes"


def test_lag_of_a_group() -> None:
    lag = group(PositionView(T0, 3, 10, 2.5, MEMBER), PositionView(T1, 12, 10, 0.0, None))
    assert (lag.lag, lag.lag_seconds) == (7, 2.5)
    unread = group(PositionView(T0, None, 10, None, MEMBER))
    assert (unread.lag, unread.lag_seconds) == (None, None)
    assert group(PositionView(T0, 3, None, None, None)).lag is None, "no leader, no end"


def test_assignments_as_text() -> None:
    assert assignment_text(by_topic([T0, T1, TopicPartition("u", 4)])) == "t:0,1;u:4"
    assert assignment_text(by_topic([])) is None


def test_rates_between_two_looks() -> None:
    watch = LagWatch(by_partition=False)
    (first,) = watch.rows([group(PositionView(T0, 0, 100, 1.0, None), PositionView(T1, 0, 0, 0.0, None))], 10.0)
    assert (first["lag"], first["produced_per_second"], first["consumed_per_second"]) == (100, None, None)
    (second,) = watch.rows(
        [group(PositionView(T0, 60, 120, 0.5, None), PositionView(T1, 10, 20, 0.2, None))], 12.0
    )
    assert (second["lag"], second["lag_seconds"]) == (70, 0.5)
    assert (second["produced_per_second"], second["consumed_per_second"]) == (20.0, 35.0)
    assert second["chart"] == "█▅"


def test_each_partition_on_its_own() -> None:
    rows = LagWatch(by_partition=True).rows(
        [group(PositionView(T0, 0, 1, 1.0, None), PositionView(T1, 0, 2, 1.0, None))], 1.0
    )
    assert [(row["partition"], row["lag"]) for row in rows] == [(0, 1), (1, 2)]


def test_a_group_without_positions_has_a_row_too() -> None:
    (row,) = LagWatch(by_partition=False).rows([group(members=(MEMBER,))], 1.0)
    assert (row["group"], row["members"], row["topic"], row["lag"]) == ("g", 1, None, None)


def test_charts() -> None:
    assert chart([]) == ""
    assert chart([0, 0]) == "▁▁"
    assert chart([0, 50, 100]) == "▁▄█"


def test_a_drawing_takes_the_place_of_the_last(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    screen = Screen("name groups to see fewer")
    screen.draw(["one", "two"])
    screen.draw(["x" * 30, "\x1b[1mhead" + "y" * 30 + "\x1b[0m"])
    screen.draw([str(number) for number in range(10)])
    written = capsys.readouterr().out
    assert written.startswith("one\x1b[K\ntwo\x1b[K\n\x1b[J")
    assert "\x1b[2F" + "x" * 19 + "…\x1b[K\n" in written, "up two lines, and nothing that wraps"
    assert "\x1b[1mhead" + "y" * 15 + "…\x1b[0m\x1b[K\n" in written
    assert written.endswith("2\x1b[K\n... and 7 more; nam…\x1b[K\n\x1b[J"), "no more than fits"


def test_kafkas_times() -> None:
    assert parse_iso_duration("P1DT2H3M4S") == 93_784
    assert parse_iso_duration("PT0.5S") == 0.5
    for text in ("", "P", "PT", "1D", "P1H"):
        with pytest.raises(click.UsageError):
            parse_iso_duration(text)
    assert parse_datetime("2024-05-01T12:30:00.250") == 1_714_566_600_250, "UTC, as in Kafka's tool"
    assert parse_datetime("2024-05-01T14:30:00.250+02:00") == 1_714_566_600_250
    with pytest.raises(click.UsageError):
        parse_datetime("yesterday")


def test_plans_from_files(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("t,0,5\n\nt,1,7\n")
    assert read_plan(plan, "g") == {T0: 5, T1: 7}
    plan.write_text("g,t,0,5\nother,t,1,7\n")
    assert read_plan(plan, "g") == {T0: 5}
    plan.write_text("t,zero,5\n")
    with pytest.raises(CommandError, match=r"plan\.csv:1"):
        read_plan(plan, "g")
    with pytest.raises(CommandError, match="Cannot read"):
        read_plan(tmp_path / "missing.csv", "g")


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["group", "lst"], 2, ["Did you mean 'list'?"]),
        (["group", "list", "["], 2, ["not a valid regular expression"]),
        (["group", "list", "-b", UNUSED], 3, ["Cannot reach a broker at 127.0.0.1:1"]),
        (["group", "describe"], 2, ["Name groups, or use --all."]),
        (["group", "describe", "g", "--all"], 2, ["Name groups, or use --all."]),
        (["group", "describe", "g", "--members", "--state"], 2, ["one of --members and --state"]),
        (["group", "seek", "g"], 2, ["--to"]),
        (["group", "seek", "g", "--to", "soon"], 2, ["'soon' is not a valid position", "earliest, latest"]),
        (["group", "seek", "g", "--to", "-5", "-t", "t:x"], 2, ["'t:x' is not of the form topic or topic:0,2"]),
        (["group", "delete", "g"], 2, ["Delete 1 group (g)", "add --yes"]),
        (["group", "watch", "-i", "0"], 2, ["--interval"]),
        (["kafka-consumer-groups"], 2, ["exactly one of --list"]),
        (["kafka-consumer-groups", "--describe"], 2, ["--describe needs --group"]),
        (["kafka-consumer-groups", "--reset-offsets", "--group", "g"], 2, ["exactly one of --to-earliest"]),
        (
            ["kafka-consumer-groups", "--reset-offsets", "--group", "g", "--to-latest"],
            2,
            ["one of --topic and --all-topics"],
        ),
        (["kafka-consumer-groups", "--list", "--bootstrap-server", UNUSED], 3, ["refused"]),
    ],
    ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, list) else None,
)
def test_mistakes(arguments: list[str], code: int, parts: list[str]) -> None:
    result = headrace(*arguments)
    assert result.returncode == code, result.stderr
    for part in parts:
        assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == "", "stdout is data"
