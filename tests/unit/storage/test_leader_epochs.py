"""Leader epochs: Kafka's OffsetForLeaderEpoch answers, and both ends of the history (KIP-101, KIP-279)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.env.real import RealDisk
from headrace.storage.checkpoints import read_leader_epochs
from headrace.storage.leader_epochs import LeaderEpochs

UNDEFINED = (-1, -1)


def history() -> LeaderEpochs:
    epochs = LeaderEpochs("unused")
    for epoch, start in ((2, 10), (4, 20), (7, 50)):
        epochs.assign(epoch, start)
    return epochs


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, UNDEFINED),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 50)),
        (6, (4, 50)),
        (7, (7, 99)),
        (8, UNDEFINED),
    ],
)
def test_end_offset_for(asked: int, answer: tuple[int, int]) -> None:
    assert history().end_offset_for(asked, log_end_offset=99) == answer


def test_nothing_is_known_of_an_empty_history() -> None:
    assert LeaderEpochs("unused").end_offset_for(0, 5) == UNDEFINED
    assert LeaderEpochs("unused").latest == -1


@pytest.mark.parametrize(
    ("epoch", "start", "entries"),
    [
        (7, 60, ((2, 10), (4, 20), (7, 50))),
        (8, 60, ((2, 10), (4, 20), (7, 50), (8, 60))),
        (8, 50, ((2, 10), (4, 20), (8, 50))),
        (7, 40, ((2, 10), (4, 20), (7, 40))),
        (8, 15, ((2, 10), (8, 15))),
        (3, 30, ((2, 10), (3, 30))),
        (-1, 70, ((2, 10), (4, 20), (7, 50))),
    ],
)
def test_assign_drops_what_contradicts_it(epoch: int, start: int, entries: tuple[tuple[int, int], ...]) -> None:
    epochs = history()
    epochs.assign(epoch, start)
    assert epochs.entries == entries


def test_truncation_from_both_ends() -> None:
    epochs = history()
    epochs.truncate_from_end(50)
    assert list(epochs.entries) == [(2, 10), (4, 20)]
    epochs.truncate_from_start(15)
    assert list(epochs.entries) == [(2, 15), (4, 20)]
    epochs.truncate_from_start(20)
    assert list(epochs.entries) == [(4, 20)]
    epochs.truncate_from_start(5)
    assert list(epochs.entries) == [(4, 20)]


def test_epoch_for() -> None:
    assert [history().epoch_for(offset) for offset in (9, 10, 19, 20, 49, 50, 1000)] == [-1, 2, 2, 4, 4, 7, 7]


def test_saved_only_when_changed(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    epochs = LeaderEpochs(str(path))
    epochs.save(RealDisk())
    assert not path.exists()
    epochs.assign(3, 0)
    epochs.save(RealDisk())
    assert read_leader_epochs(RealDisk(), str(path)) == [(3, 0)]
    path.unlink()
    epochs.save(RealDisk())
    assert not path.exists()
