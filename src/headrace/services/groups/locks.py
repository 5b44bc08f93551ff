"""A readers-writer lock per group, with callbacks instead of tasks.

Shared holders of a group (commits) overlap; an exclusive one is alone in its group. Whoever cannot go at once
waits in order, so nobody starves. `run_alone` waits until no group is held and keeps everybody out until it is
released. A lock is there only while someone holds it or waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Run = Callable[[], None]


class _Lock:
    __slots__ = ("admitting", "exclusive", "holders", "waiting")

    def __init__(self) -> None:
        self.holders = 0
        self.exclusive = False
        self.waiting: deque[tuple[bool, Run]] | None = None
        self.admitting = False
        """A loop that lets waiters in runs further up the stack."""

    def may_enter(self, shared: bool) -> bool:
        return not self.holders or (shared and not self.exclusive)


class GroupLocks:
    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}
        self._held = 0
        self._alone = False
        self._want_alone: deque[Run] = deque()
        self._kept_out: deque[tuple[str, bool, Run]] = deque()

    def acquire(self, group_id: str, shared: bool, run: Run) -> None:
        """Call `run` once the caller holds the group: now, or from the `release` that frees it."""
        if self._alone or self._want_alone:
            self._kept_out.append((group_id, shared, run))
            return
        lock = self._locks.get(group_id)
        if lock is None:
            lock = self._locks[group_id] = _Lock()
        if not lock.waiting and lock.may_enter(shared):
            self._enter(lock, shared)
            run()
            return
        if lock.waiting is None:
            lock.waiting = deque()
        lock.waiting.append((shared, run))

    def try_share(self, group_id: str) -> bool:
        """The group is ours together with others, at once or not at all."""
        if self._alone or self._want_alone:
            return False
        lock = self._locks.get(group_id)
        if lock is None:
            lock = self._locks[group_id] = _Lock()
        elif lock.exclusive or lock.waiting:
            return False
        lock.holders += 1
        self._held += 1
        return True

    def is_changing(self, group_id: str) -> bool:
        """Whether someone alone in the group, or alone at all, is at work or waits to be."""
        if self._alone or self._want_alone:
            return True
        lock = self._locks.get(group_id)
        return lock is not None and (lock.exclusive or bool(lock.waiting))

    def release(self, group_id: str) -> None:
        lock = self._locks[group_id]
        assert lock.holders > 0
        lock.holders -= 1
        self._held -= 1
        if lock.admitting:
            return
        if lock.waiting:
            self._admit(lock)
        if not lock.holders and not lock.waiting and self._locks.get(group_id) is lock:
            del self._locks[group_id]
        if self._want_alone:
            self._go_alone()

    def run_alone(self, run: Run) -> None:
        """Call `run` once no lock is held; `release_alone` ends it."""
        self._want_alone.append(run)
        self._go_alone()

    def release_alone(self) -> None:
        assert self._alone
        self._alone = False
        self._go_alone()
        while self._kept_out and not self._alone and not self._want_alone:
            self.acquire(*self._kept_out.popleft())

    def _enter(self, lock: _Lock, shared: bool) -> None:
        lock.holders += 1
        lock.exclusive = not shared
        self._held += 1

    def _admit(self, lock: _Lock) -> None:
        # A loop rather than one waiter calling the next: each may release before it returns.
        assert lock.waiting is not None
        lock.admitting = True
        try:
            while lock.waiting and lock.may_enter(lock.waiting[0][0]):
                shared, run = lock.waiting.popleft()
                self._enter(lock, shared)
                run()
        finally:
            lock.admitting = False

    def _go_alone(self) -> None:
        if self._want_alone and not self._alone and not self._locks:
            assert not self._held
            self._alone = True
            self._want_alone.popleft()()
