"""`headrace start --workers N`: one process that owns N brokers of one machine, and does nothing else.

It starts them, says on stdout where clients connect once all are ready and know each other, restarts what crashed
(`restarts`), and passes SIGTERM and Ctrl-C on. A second Ctrl-C kills. Workers run in sessions of their own, so
that a terminal's Ctrl-C reaches only the supervisor; they write to its stderr, and die with it (`parent`).

A worker tells that it is ready by a line on its stdout, after it has written its `run_files`. One that ends with
code 0 was stopped by somebody and stays down. At the first start a worker that refuses to start (exit code 1 or 2)
ends everything: trying again does not free a port. Later the others continue without it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import click

from headrace.cli.broker.restarts import Restarts
from headrace.cli.broker.run_files import BrokerRunFiles
from headrace.cli.common.failure import FAILED

log = logging.getLogger("headrace.supervisor")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
READ_BYTES = 65536


class Worker:
    """One broker: its process while it runs, and when it is to be started again."""

    def __init__(self, command: Sequence[str], files: BrokerRunFiles, first: Sequence[str] | None = None) -> None:
        """`first` is the command to use until the worker has been ready once, if it is different."""
        self.id = files.broker_id
        self.files = files
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = Restarts()
        self.due: float | None = None
        """When to start it again; None while it runs or is to stay down."""
        self.ready = False
        self.was_ready = False
        """Ever."""
        self._command = command
        self._first = first or command

    def start(self) -> None:
        self.due, self.ready = None, False
        command = self._command if self.was_ready else self._first
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def became_ready(self, now: float) -> None:
        self.ready = self.was_ready = True
        self.restarts.ready(now)


class Supervisor:
    def __init__(self, workers: Sequence[Worker], data: str) -> None:
        self._workers = workers
        self._data = data
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._wakeup_end = socket.socketpair()
        self._all_ready = False
        self._stopping = False
        self._failed = False

    def run(self) -> int:
        """Runs until all workers have ended; returns the exit code."""
        with self._signals():
            for worker in self._workers:
                self._start(worker)
            try:
                while self._running():
                    self._turn()
            finally:
                self._kill()  # none are left, unless this process failed
                for worker in self._workers:
                    worker.files.remove_supervisor()
        return FAILED if self._failed else 0

    def _running(self) -> bool:
        return any(worker.process is not None or worker.due is not None for worker in self._workers)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals are bytes to read, between two turns."""
        self._wakeup.setblocking(False)
        self._wakeup_end.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        former = signal.set_wakeup_fd(self._wakeup_end.fileno())
        heeded = [one for one in SIGNALS if one == signal.SIGCHLD or signal.getsignal(one) != signal.SIG_IGN]
        handlers = {number: signal.signal(number, lambda number, frame: None) for number in heeded}
        try:
            yield
        finally:
            signal.set_wakeup_fd(former)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._selector.close()
            self._wakeup.close()
            self._wakeup_end.close()

    def _turn(self) -> None:
        dues = [worker.due for worker in self._workers if worker.due is not None]
        timeout = max(min(dues) - time.monotonic(), 0.0) if dues else None
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._wakeup:
                self._signalled()
            else:
                self._heard(key.data)
        now = time.monotonic()
        for worker in self._workers:
            if worker.due is not None and worker.due <= now:
                self._start(worker)

    def _start(self, worker: Worker) -> None:
        try:
            worker.start()
        except OSError as error:  # no memory, too many processes: try again later
            worker.due = None
            self._start_later(worker, f"could not be started ({error.strerror})")
            return
        assert worker.process is not None
        assert worker.process.stdout is not None
        self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def _heard(self, worker: Worker) -> None:
        """Handle its ready line, or the end of its output."""
        assert worker.process is not None
        output = worker.process.stdout
        assert output is not None
        if not os.read(output.fileno(), READ_BYTES):
            self._selector.unregister(output)
            output.close()
            self._ended(worker, worker.process.wait())
        elif not worker.ready:
            worker.became_ready(time.monotonic())
            self._tell_ready(worker)

    def _tell_ready(self, worker: Worker) -> None:
        if self._all_ready:
            log.info("Broker %d is ready again at %s", worker.id, worker.files.address())
        elif not self._stopping and all(one.ready for one in self._workers):
            self._all_ready = True
            numbers = ", ".join(str(one.id) for one in self._workers)
            bootstrap = ",".join(one.files.address() or "" for one in self._workers)
            click.echo(f"Headrace brokers {numbers} are ready at {bootstrap}, data in {self._data}")

    def _signalled(self) -> None:
        for number in self._wakeup.recv(READ_BYTES):
            if number == signal.SIGCHLD:
                continue  # the end of its output shows which
            if not self._stopping:
                log.info("Stopping all brokers")
                self._stop()
            elif number == signal.SIGINT:
                log.warning("Killing the brokers that have not stopped; no acknowledged record is lost")
                self._kill()

    def _stop(self) -> None:
        self._stopping = True
        for worker in self._workers:
            worker.due = None
            worker.signal(signal.SIGTERM)

    def _kill(self) -> None:
        for worker in self._workers:
            worker.signal(signal.SIGKILL)

    def _ended(self, worker: Worker, code: int) -> None:
        worker.process, worker.ready = None, False
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if self._stopping:
            if code not in (0, -signal.SIGTERM):  # killed by the signal before it could handle it
                log.error("Broker %d %s while it was stopping", worker.id, how)
                self._failed = True
        elif code == 0:
            log.warning("Broker %d was stopped and stays down; the others keep running", worker.id)
            worker.files.remove_supervisor()
        elif code > 0 and not (self._all_ready or worker.was_ready):
            log.error("Broker %d could not start (see the reason above); stopping the others", worker.id)
            self._failed = True
            self._stop()
        else:
            self._start_later(worker, how)

    def _start_later(self, worker: Worker, how: str) -> None:
        now = time.monotonic()
        delay = worker.restarts.delay_after_end(now)
        if delay is not None:
            log.error("Broker %d %s; restarting it in %g s", worker.id, how, delay)
            worker.due = now + delay
            return
        self._failed = True
        worker.files.remove_supervisor()
        failures = worker.restarts.failed_starts
        log.error("Broker %d %s: it failed to start %d times in a row; giving up", worker.id, how, failures)
        if not self._all_ready:
            self._stop()
        elif not self._running():
            log.error("No broker is left")
        else:
            log.error("The other brokers keep running. Fix the cause given in its log, then restart all of them")


def supervise(
    options: Sequence[str],
    file: Sequence[str],
    settings: Sequence[Mapping[str, str]],
    files: Sequence[BrokerRunFiles],
    data: str,
) -> int:
    """Run `headrace start` with these options and file once for each of the settings."""
    workers = []
    for one, its_files in zip(settings, files, strict=True):
        overrides = [part for name, text in one.items() for part in ("--override", f"{name}={text}")]
        own = ["--supervisor", str(os.getpid()), *overrides]
        command = [sys.executable, "-m", "headrace", "start", *options, *own]
        beside = [part for other in files if other is not its_files for part in ("--beside", str(other.broker_id))]
        workers.append(Worker([*command, *file], its_files, [*command, *beside, *file]))
    return Supervisor(workers, data).run()
