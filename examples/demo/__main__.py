"""The demo: log events through a broker and a Spark pipeline, end to end.

    make demo                      about a minute
    make demo ARGS=--once          the short run that the tests use

It starts Headrace on a free port with a temporary data directory, and the log pipeline of
`examples/pipelines/logs` on Spark. A stock Kafka client produces log events at a steady rate, with one burst and
some that are broken. The pipeline parses them, sends errors to one topic and counts per minute to another,
archives all as Parquet, and puts the broken ones aside. At the end all is counted: what went in must be
there, once.
Nothing is left behind.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import dataclass, field

from examples.demo.broker import BrokerProcess, DemoFailed
from examples.demo.events import (
    BURST_EVENTS,
    CLOCK_SPEED,
    FIRST_EVENTS,
    PARTITIONS,
    STEADY_RATE,
    TOPIC,
    Feed,
    create_topic,
)
from examples.demo.pipeline import PipelineProcess
from examples.demo.results import Results, read_results
from examples.demo.screen import Screen, bar, plot

TICK_S = 0.5
SPARK_TIMEOUT_S = 300.0
DRAIN_TIMEOUT_S = 300.0


@dataclass(slots=True)
class History:
    """One value a tick, for the plots."""

    produced: list[float] = field(default_factory=list)
    processed: list[float] = field(default_factory=list)
    lag: list[float] = field(default_factory=list)


class Demo:
    def __init__(self, screen: Screen, seconds: float) -> None:
        self.screen = screen
        self.broker = BrokerProcess()
        self.feed = Feed(self.broker.bootstrap, seconds)
        self.pipeline = PipelineProcess(self.broker.bootstrap, self.broker.directory)
        self.history = History()
        self._begin = 0.0

    def run(self) -> bool:
        self._start()
        self._watch()
        code, took_s = self.pipeline.stop()
        if code:
            raise DemoFailed(f"the pipeline ended with exit code {code}")
        results = read_results(self.broker.bootstrap, self.pipeline.archive)
        return self._sum_up(results, took_s)

    def _start(self) -> None:
        say = self.screen.say
        if self.broker.skipped:
            say(f"Port {self.broker.skipped[0]} is in use; using {self.broker.port}.")
        self.broker.start()
        say(f"Headrace listens on {self.screen.strong(self.broker.bootstrap)} after {self.broker.started_s:.2f} s")
        create_topic(self.broker.bootstrap)
        say(f"Topic {TOPIC} has {PARTITIONS} partitions; a stock client sends {STEADY_RATE:,} events per second")
        say("Spark is starting; it will run examples/pipelines/logs/pipeline.yml")
        say()
        self._begin = time.monotonic()
        self.pipeline.start()
        self.feed.send_first()
        self._await_spark()
        self.feed.start()

    def _await_spark(self) -> None:
        begin = time.monotonic()
        while self.pipeline.rows < FIRST_EVENTS:
            self.pipeline.check_alive()
            waited_s = time.monotonic() - begin
            if waited_s > SPARK_TIMEOUT_S:
                raise DemoFailed(f"Spark was not ready within {SPARK_TIMEOUT_S:.0f} s")
            self.screen.frame([f"  Spark has been starting for {waited_s:.0f} s"])
            time.sleep(TICK_S)

    def _watch(self) -> None:
        """Show what happens until the feed has ended and the pipeline has been through all of it."""
        sent = done = 0
        before = time.monotonic()
        deadline = float("inf")
        while True:
            time.sleep(TICK_S)
            self.broker.check_alive()
            self.pipeline.check_alive()
            now = time.monotonic()
            rates = (self.feed.sent - sent) / (now - before), (self.pipeline.rows - done) / (now - before)
            sent, done, before = self.feed.sent, self.pipeline.rows, now
            self._tick(rates, sent, done)
            self.screen.frame(self._figures(rates, sent, done), self._line(rates, sent, done))
            if not self.feed.is_alive():
                deadline = min(deadline, now + DRAIN_TIMEOUT_S)
                if done >= self.feed.acknowledged or now > deadline:
                    return

    def _tick(self, rates: tuple[float, float], sent: int, done: int) -> None:
        self.history.produced.append(rates[0])
        self.history.processed.append(rates[1])
        self.history.lag.append(max(0, sent - done))

    def _figures(self, rates: tuple[float, float], sent: int, done: int) -> list[str]:
        history, screen = self.history, self.screen
        full = max(*history.produced, *history.processed, float(STEADY_RATE))
        burst = screen.colour(33, "  burst!") if self.feed.bursting else ""
        used = f"{self.broker.memory_mb():.0f} MB of memory, {self.broker.cpu_s():.1f} s of CPU"
        return [
            f"  produced  {sent:>9,}  {rates[0]:>8,.0f}/s  {screen.colour(36, bar(rates[0], full))}{burst}",
            f"  processed {done:>9,}  {rates[1]:>8,.0f}/s  {screen.colour(32, bar(rates[1], full))}",
            f"  lag       {history.lag[-1]:>9,.0f}  micro-batch {self.pipeline.batch_s:.2f} s",
            f"  broker    {used}",
        ]

    def _line(self, rates: tuple[float, float], sent: int, done: int) -> str:
        return (
            f"{time.monotonic() - self._begin:5.1f} s  produced {sent:,} ({rates[0]:,.0f}/s)  "
            f"processed {done:,} ({rates[1]:,.0f}/s)  lag {self.history.lag[-1]:,.0f}"
            f"{'  burst' if self.feed.bursting else ''}"
        )

    def _sum_up(self, results: Results, stop_s: float) -> bool:
        say, strong = self.screen.say, self.screen.strong
        feed, pipeline = self.feed, self.pipeline
        say()
        say(strong(f"Events per second, {TICK_S:g} s per column"))
        for name, values in (("produced", self.history.produced), ("processed", self.history.processed)):
            self._plot(name, values, f"{max(values):,.0f}/s")
        self._plot("lag", self.history.lag, f"{max(self.history.lag):,.0f}")
        say()
        say(strong(f"Events per minute, counted by the pipeline (event time runs {CLOCK_SPEED} times as fast)"))
        most = max((minute["events"] for minute in results.minutes.values()), default=0)
        for start, minute in results.minutes.items():
            events, errors = minute["events"], minute["errors"]
            say(f"  {start[11:16]}  {bar(events, most)}  {events:>7,}  {errors:,} errors")
        say()
        say(strong("What happened"))
        say(f"  events        {feed.acknowledged:,} acknowledged, {feed.broken:,} of them broken")
        if feed.burst_s:
            say(f"  burst         {BURST_EVENTS:,} events acknowledged in {feed.burst_s:.2f} s")
        say(f"  archive       {results.archived:,} rows in Parquet")
        say(f"  errors        {results.errors:,} in the topic logs.errors")
        say(f"  dead letters  {sum(results.dead.values()):,} in logs.dead:")
        for reason, count in results.dead.most_common(5):
            say(f"                {count:>5,}  {reason[:80]}")
        say(f"  broker        {self.broker.memory_mb():.0f} MB of memory, {self.broker.cpu_s():.1f} s of CPU")
        say(f"  pipeline      first rows after {pipeline.started_s:.0f} s, stopped cleanly in {stop_s:.1f} s")
        return self._check(results)

    def _plot(self, name: str, values: list[float], top: str) -> None:
        for number, line in enumerate(plot(values)):
            self.screen.say(
                f"  {name if number == 0 else '':<10}{line}{'  ' + top if number == 0 else ''}".rstrip()
            )

    def _check(self, results: Results) -> bool:
        feed = self.feed
        checks = {
            "archived": (results.archived, feed.good),
            "counted": (results.counted, feed.good),
            "errors": (results.errors, feed.errors),
            "dead letters": (sum(results.dead.values()), feed.broken),
            "acknowledged": (feed.acknowledged, feed.sent),
        }
        wrong = [f"{name} {got:,} of {wanted:,}" for name, (got, wanted) in checks.items() if got != wanted]
        verdict = ", ".join(wrong) if wrong else "every event arrived exactly once"
        self.screen.say(f"  check         {self.screen.colour(31 if wrong else 32, verdict)}")
        return not wrong

    def close(self) -> None:
        self.feed.stopping.set()
        if self.feed.is_alive():
            self.feed.join(DRAIN_TIMEOUT_S)
        self.pipeline.stop()
        self.broker.stop()
        self.broker.remove()


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description="Log events through a broker and a Spark pipeline.")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to produce (default 20)")
    parser.add_argument("--once", action="store_true", help="a short run of five seconds")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    screen = Screen()
    demo = Demo(screen, 5.0 if arguments.once else arguments.seconds)
    try:
        good = demo.run()
        code, took_s = demo.broker.stop()
        ending = f"clean, in {took_s:.2f} s" if code == 0 else f"exit code {code}"
        screen.say(f"  stop          {ending}")
        return 0 if good and code == 0 else 1
    except DemoFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        demo.close()


if __name__ == "__main__":
    sys.exit(main())
