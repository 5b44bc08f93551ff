"""Four ordinary clients beside a drill's load, as applications use them: each produces, and reads in groups.

librdkafka, aiokafka, kafka-python, and the Java client (Kafka's own verifiable producer and consumer). Nothing may
surface in any of them while brokers restart one after the other: no failed record, no error of a poll or a commit,
and no partition taken away from a member (a rebalance). A client's own retries are not errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import IO, Any, ClassVar, Self

from headrace.testing.apache_kafka import cache_dir
from headrace.testing.process import die_with_parent

TOPIC = "everyday"
PARTITIONS = 6
SECONDS_PER_RECORD = 0.02
COMMIT_EVERY = 20
POLL_SECONDS = 0.2
END_SECONDS = 60
JAVA = ("java", "-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
QUIET_JAVA = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
TOOLS = "org.apache.kafka.tools"


class Everyday(ABC):
    """One client program. It lives in a thread, or is a process that a thread listens to."""

    title: ClassVar[str]
    group: ClassVar[str | None] = None

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.count = 0
        """Records acknowledged to a producer, or committed by a member."""
        self.counted = 0
        """What it had done when it was last looked at."""
        self.errors: list[str] = []
        self.taken = 0
        """How often partitions were taken away from a member."""
        self.owned: set[int] = set()
        self.began = threading.Event()
        """All are at work: from now on members commit. A commit in the middle of the first rebalances may fail."""
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(END_SECONDS)

    def _live(self) -> None:
        try:
            self.live()
        except Exception as error:
            self.errors.append(f"{time.strftime('%H:%M:%S')} {type(error).__name__}: {error}")

    def state(self) -> str:
        return f"{self.title} {self.count}" + (f" of {sorted(self.owned)}" if self.group is not None else "")

    def gave_up(self, partitions: Iterable[int]) -> None:
        gone = self.owned & set(partitions)
        self.owned -= gone
        if gone and not self.stopping.is_set():
            self.taken += 1

    @abstractmethod
    def live(self) -> None: ...


class LibrdkafkaProducer(Everyday):
    title = "librdkafka producer"

    def live(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})
        number = 0
        while not self.stopping.wait(SECONDS_PER_RECORD):
            producer.produce(TOPIC, b"librdkafka", partition=number % PARTITIONS, on_delivery=self._told)
            number += 1
            producer.poll(0)
        producer.flush(END_SECONDS)

    def _told(self, error: Any, _: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.count += 1


class LibrdkafkaMember(Everyday):
    title, group = "librdkafka member", "librdkafka-classic"
    protocol = "classic"

    def live(self) -> None:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "group.protocol": self.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        consumer.subscribe([TOPIC], on_assign=self._got, on_revoke=self._gave, on_lost=self._gave)
        unsaved = 0
        while not self.stopping.is_set():
            for message in consumer.consume(COMMIT_EVERY, POLL_SECONDS):
                if (error := message.error()) is not None:
                    self.errors.append(str(error))
                else:
                    unsaved += 1
            if unsaved >= COMMIT_EVERY:
                if self.began.is_set():
                    consumer.commit(asynchronous=False)
                self.count, unsaved = self.count + unsaved, 0
        consumer.close()

    def _got(self, _: Any, partitions: Any) -> None:
        self.owned |= {one.partition for one in partitions}

    def _gave(self, _: Any, partitions: Any) -> None:
        self.gave_up(one.partition for one in partitions)


class LibrdkafkaConsumerMember(LibrdkafkaMember):
    title, group = "librdkafka member (KIP-848)", "librdkafka-consumer"
    protocol = "consumer"


class KafkaPythonProducer(Everyday):
    title = "kafka-python producer"

    def live(self) -> None:
        import kafka

        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True, acks="all")
        number = 0
        sent = []
        while not self.stopping.wait(SECONDS_PER_RECORD):
            sent.append(producer.send(TOPIC, b"kafka-python", partition=number % PARTITIONS))
            number += 1
            self.count += self._settle(sent)
        producer.flush(END_SECONDS)
        self.count += self._settle(sent)
        producer.close(END_SECONDS)

    def _settle(self, sent: list[Any]) -> int:
        good = 0
        for one in [one for one in sent if one.succeeded() or one.failed()]:
            sent.remove(one)
            if one.failed():
                self.errors.append(repr(one.exception))
            else:
                good += 1
        return good


class KafkaPythonMember(Everyday):
    title, group = "kafka-python member", "kafka-python"

    def live(self) -> None:
        import kafka

        member = self

        class Listener(kafka.ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: set[kafka.TopicPartition]) -> None:
                member.gave_up(one.partition for one in revoked)

            def on_partitions_assigned(self, assigned: set[kafka.TopicPartition]) -> None:
                member.owned |= {one.partition for one in assigned}

        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        _remember_joins(consumer)
        consumer.subscribe([TOPIC], listener=Listener())
        unsaved = 0
        while not self.stopping.is_set():
            unsaved += sum(len(many) for many in consumer.poll(int(POLL_SECONDS * 1000)).values())
            if unsaved >= COMMIT_EVERY:
                if self.began.is_set():
                    consumer.commit()
                self.count, unsaved = self.count + unsaved, 0
        consumer.close(autocommit=False)


def _remember_joins(consumer: Any) -> None:
    """kafka-python 3.0 forgets its assignment when a poll ends between the answers to its join and its sync."""
    coordinator = consumer._coordinator
    need_rejoin = coordinator.need_rejoin
    coordinator.need_rejoin = lambda: need_rejoin() or coordinator._join_task is not None


class AiokafkaProducer(Everyday):
    title = "aiokafka producer"

    def live(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        import aiokafka

        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True)
        await producer.start()
        number = 0
        sent: set[asyncio.Future[Any]] = set()
        while not self.stopping.is_set():
            await asyncio.sleep(SECONDS_PER_RECORD)
            future = await producer.send(TOPIC, b"aiokafka", partition=number % PARTITIONS)
            sent.add(future)
            future.add_done_callback(self._told)
            future.add_done_callback(sent.discard)
            number += 1
        await producer.stop()

    def _told(self, future: asyncio.Future[Any]) -> None:
        if (error := future.exception()) is not None:
            self.errors.append(repr(error))
        else:
            self.count += 1


class AiokafkaMember(Everyday):
    title, group = "aiokafka member", "aiokafka"

    def live(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        import aiokafka

        member = self

        class Listener(aiokafka.ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked: set[aiokafka.TopicPartition]) -> None:
                member.gave_up(one.partition for one in revoked)

            async def on_partitions_assigned(self, assigned: set[aiokafka.TopicPartition]) -> None:
                member.owned |= {one.partition for one in assigned}

        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        consumer.subscribe([TOPIC], listener=Listener())
        await consumer.start()
        unsaved = 0
        while not self.stopping.is_set():
            found = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
            unsaved += sum(len(many) for many in found.values())
            if unsaved >= COMMIT_EVERY:
                if self.began.is_set():
                    await consumer.commit()
                self.count, unsaved = self.count + unsaved, 0
        await consumer.stop()


class JavaTool(Everyday):
    """One of Kafka's verifiable clients: it writes a line of JSON for each thing that happens."""

    tool: ClassVar[str]

    @abstractmethod
    def arguments(self) -> list[str]:
        """What it is to do, beside the cluster it does it on."""

    @abstractmethod
    def note(self, event: dict[str, Any]) -> None:
        """Count what it tells."""

    def live(self) -> None:
        classes = f"{cache_dir() / 'libs'}/*"
        command = [*JAVA, QUIET_JAVA, "-cp", classes, f"{TOOLS}.{self.tool}", "--bootstrap-server", self.bootstrap]
        with subprocess.Popen(
            [*command, *self.arguments()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent(),
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            ender = threading.Thread(target=self._end, args=(process,), daemon=True)
            said = threading.Thread(target=self._heard, args=(process.stderr,), daemon=True)
            ender.start()
            said.start()
            for line in process.stdout:
                if line.startswith("{"):
                    self.note(json.loads(line))
            if not self.stopping.is_set():
                self.errors.append(f"{self.tool} ended by itself with {process.wait()}")

    def _end(self, process: subprocess.Popen[str]) -> None:
        self.stopping.wait()
        process.terminate()

    def _heard(self, stream: IO[str]) -> None:
        """Its log holds errors only: what the client could not mend by itself."""
        for line in stream:
            if not self.stopping.is_set():
                self.errors.append(line.strip())


class JavaProducer(JavaTool):
    title, tool = "Java producer", "VerifiableProducer"

    def arguments(self) -> list[str]:
        """The tool itself does not retry; the client does by default."""
        rate = str(int(1 / SECONDS_PER_RECORD))
        return ["--topic", TOPIC, "--throughput", rate, "--acks", "-1", "--command-config", self._settings.name]

    def live(self) -> None:
        with NamedTemporaryFile("w", suffix=".properties") as self._settings:
            self._settings.write("retries=2147483647\nenable.idempotence=true\n")
            self._settings.flush()
            super().live()

    def note(self, event: dict[str, Any]) -> None:
        if event["name"] == "producer_send_success":
            self.count += 1
        elif event["name"] == "producer_send_error":
            self.errors.append(f"{event.get('exception')}: {event.get('message')}")


class JavaMember(JavaTool):
    title, group, tool = "Java member", "java-classic", "VerifiableConsumer"
    protocol = "classic"

    def arguments(self) -> list[str]:
        return [
            *("--topic", TOPIC, "--group-id", str(self.group), "--group-protocol", self.protocol),
            *("--reset-policy", "earliest"),
        ]

    def note(self, event: dict[str, Any]) -> None:
        name = event["name"]
        if name == "partitions_assigned":
            self.owned |= {one["partition"] for one in event["partitions"]}
        elif name == "partitions_revoked":
            self.gave_up(one["partition"] for one in event["partitions"])
        elif name == "offsets_committed":
            if event["success"]:
                self.count += 1
            else:
                self.errors.append(f"commit: {event.get('error')}")


class JavaConsumerMember(JavaMember):
    title, group = "Java member (KIP-848)", "java-consumer"
    protocol = "consumer"


FAMILIES: dict[str, tuple[type[Everyday], ...]] = {
    "librdkafka": (
        LibrdkafkaProducer,
        *(LibrdkafkaMember, LibrdkafkaMember),
        *(LibrdkafkaConsumerMember, LibrdkafkaConsumerMember),
    ),
    "aiokafka": (AiokafkaProducer, AiokafkaMember, AiokafkaMember),
    "kafka-python": (KafkaPythonProducer, KafkaPythonMember, KafkaPythonMember),
    "java": (JavaProducer, JavaMember, JavaConsumerMember),
}


class EverydayClients:
    """All of them while the block lasts."""

    def __init__(self, bootstrap: str, families: Iterable[str] = tuple(FAMILIES)) -> None:
        self.all = [kind(bootstrap) for family in families for kind in FAMILIES[family]]

    def is_settled(self) -> bool:
        """Everybody has done something, and each group has shared its partitions out; or somebody has ended."""
        if any(one.has_ended for one in self.all):
            return True
        groups: dict[str, list[set[int]]] = {}
        for one in self.all:
            if one.group is not None:
                groups.setdefault(one.group, []).append(set(one.owned))
        everything = set(range(PARTITIONS))
        shared = all(
            all(owned) and sum(map(len, owned)) == PARTITIONS and set().union(*owned) == everything
            for owned in groups.values()
        )
        return shared and all(one.count > 0 for one in self.all)

    def begin(self) -> None:
        """From the first time on a partition that is taken from a member is a rebalance too many."""
        for one in self.all:
            one.counted = one.count
            if not one.began.is_set():
                one.taken = 0
                if not one.has_ended:
                    one.errors.clear()  # the topic was just made: it may not have been known everywhere
                one.began.set()

    def state(self) -> str:
        return ", ".join(
            f"{one.title} {one.count}" + (f" of {sorted(one.owned)}" if one.group else "") for one in self.all
        )

    def problems(self) -> list[str]:
        """What surfaced in a client."""
        found = []
        for one in self.all:
            found += [f"{one.title}: {error}" for error in one.errors]
            if one.taken:
                found.append(f"{one.title}: partitions were taken away {one.taken} times")
        return found

    def went_on(self) -> bool:
        """Every client has done something since it was last told to begin, or has failed."""
        return all(one.count > one.counted or one.errors for one in self.all)

    def __enter__(self) -> Self:
        for library in ("aiokafka", "kafka"):
            logging.getLogger(library).setLevel(logging.CRITICAL)
        for one in self.all:
            one.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self.all:
            one.stopping.set()
        for one in self.all:
            one.stop()
