"""The composition root: the only file that wires a broker's parts together, starts them in order and stops them.

Start: lock the data directories, open the store, load the cluster's metadata, load (and if need be recover) the
logs, bind the sockets, register, agree with the metadata, serve. Stop: the same backwards; a clean stop leaves a
marker that saves the next start its recovery scan.
"""

from __future__ import annotations

import gc
import logging
import os.path
from collections.abc import Callable
from functools import partial

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic import current_boolean
from headrace.config.setting import value_text
from headrace.coordination.contract import StoreError
from headrace.env import Env
from headrace.env.worker_process import WorkerProcess
from headrace.failures import StartError
from headrace.front import Front
from headrace.handlers.broker import Broker
from headrace.handlers.context import ANONYMOUS, Context
from headrace.handlers.registry import APIS
from headrace.metadata import levels
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller
from headrace.metadata.cordons import CORDONED, cordoned_directories, parse_directories
from headrace.metadata.departed import Departed
from headrace.metadata.image import BrokerImage, Endpoint, MetadataImage
from headrace.metadata.layout import BROKER_IDS, CHANGES
from headrace.metadata.levels import LevelRefused
from headrace.metadata.membership import Membership, patiently
from headrace.metadata.standing_work import start_standing_work
from headrace.metadata.stores import renewal_interval, session_timeout, silence_limit, store_path
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition
from headrace.outside import Outside, real_outside
from headrace.replication.broker_link import BrokerLink
from headrace.replication.controller_link import BROKER_CLIENT_ID, ControllerLink
from headrace.replication.fetcher import FetchSettings
from headrace.replication.fetchers import Fetchers
from headrace.replication.host import PartitionHost
from headrace.replication.in_sync import InSyncKeeper, LagLimits
from headrace.replication.isolation import Isolation
from headrace.replication.lost_logs import lacks_confirmed
from headrace.replication.peers import Peers
from headrace.replication.replica_set import ReplicaSet
from headrace.replication.succession import Succession
from headrace.replication.throttle import ReplicationThrottle
from headrace.replication.topic_configs import TopicConfigs
from headrace.services.cleaner import Cleaner, Worker
from headrace.services.cluster_figures import ClusterFigures
from headrace.services.departing import Departing
from headrace.services.directory_watch import DirectoryWatch
from headrace.services.fetching.sessions import FetchSessions
from headrace.services.full_directories import FullDirectories
from headrace.services.groups.service import GroupService
from headrace.services.handover import Handover
from headrace.services.lag import Lag
from headrace.services.log_moves import LogMoves
from headrace.services.maintenance import Maintenance
from headrace.services.markers import write_at_once
from headrace.services.observation import Observation
from headrace.services.offline_report import OfflineReport
from headrace.services.producer_ids import ProducerIds
from headrace.services.replication_figures import ReplicationFigures
from headrace.services.scrub import Scrub
from headrace.services.shards import TopicCreator
from headrace.services.transactions.figures import TransactionFigures
from headrace.services.transactions.markers import MarkerSender
from headrace.services.transactions.service import TransactionService
from headrace.services.transactions.verification import PartitionVerifier
from headrace.storage.identity import DirectoryRefused, check_store_is_there
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directories import LogDirectories
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from headrace.wire.messages.write_txn_markers import WriteTxnMarkersResponse
from headrace.wire.schema import Request, Response

log = logging.getLogger(__name__)

SESSION_NOTE = "headrace.session"
"""In the data directory: the last session, so that the next process knows which nodes are its own."""
GC_THRESHOLDS = (5_000, 3, 15_000)
"""The hot path makes no cycles; frequent collections would only cost. The first two together are what one looks
at, as long as it does not look at everything: 20,000 objects, some 5 ms."""
COMPACTION_WORKER = "headrace.cli.broker.compaction_worker"
TRANSACTION_REQUEST_SECONDS = 10.0
"""What another broker gets to write markers in, or to say whether a partition is in a transaction."""


class Node:
    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        on_failure: Callable[[str], None] = lambda reason: None,
        outside: Outside | None = None,
    ) -> None:
        """`on_failure` is called with the reason once the broker cannot continue, and should end it."""
        self._on_failure = env.background.on_failure = on_failure
        self._env = env
        self._config = config
        self._outside = outside or real_outside(config)
        self._directories = LogDirectories(env, config.log_dirs, config.node_id)
        self._topic_configs = TopicConfigs(config)
        self._log_moves = LogMoves(env, self._directories)
        self._front: Front | None = None
        self._membership = Membership(
            env,
            config.node_id,
            lambda: self._outside.open_store(env, config),
            os.path.join(config.log_dirs[0], f"broker-{config.node_id}", SESSION_NOTE),
            on_failure,
            renewal_interval(config),
        )
        self._peers: Peers | None = None
        self._replicas: ReplicaSet | None = None
        self._metadata: ClusterMetadata | None = None
        self._controller: Controller | None = None
        self._groups: GroupService | None = None
        self._handover: Handover | None = None
        self._transactions: TransactionService | None = None
        self._brokers: BrokerLink | None = None

    @property
    def image(self) -> MetadataImage:
        """The cluster as this broker knows it."""
        assert self._metadata is not None
        return self._metadata.image

    @property
    def replicas(self) -> ReplicaSet:
        """The partitions of this broker."""
        assert self._replicas is not None
        return self._replicas

    @property
    def front(self) -> Front:
        """What clients of this broker connect to."""
        assert self._front is not None
        return self._front

    async def start(self) -> str:
        """Start everything; the addresses that clients connect to."""
        metadata = self._metadata = await self._open_metadata()
        await self._load_logs(metadata.image)
        succession = Succession(self._env, metadata, lambda: self.replicas.doubted_leaders)
        peers = self._peers = Peers(
            self._outside.connect,
            lambda: metadata.image,
            self._config.inter_broker_listener.name,
            self._membership.remove_dead,
            succession.look,
            succession.look_now,
        )
        replicas, keeper, link = self._replication(metadata, peers)
        self._replicas = replicas
        await self._env.run_blocking(replicas.load_high_watermarks)
        self._controller = Controller(
            self._env, self._membership.store, metadata, self._config.node_id, self._config
        )
        groups = self._groups = GroupService(self._env, self._config, metadata, link, replicas)
        brokers = self._brokers = BrokerLink(peers, self._config.node_id)
        broker = self._broker(metadata, link, replicas, groups, brokers)
        link.call_here = partial(answer_as_controller, broker)
        brokers.call_here = partial(answer_here, broker)
        transactions = self._transactions = broker.transactions
        front = self._front = Front(self._env, self._config, self._outside, broker)
        endpoints = await front.bind(metadata.image)
        full = FullDirectories(self._env, self._directories, replicas, lambda: metadata.image)
        report = OfflineReport(self._env, self._membership.store, replicas, full)
        await self._join(report, self._registration(metadata.image, endpoints))
        start_standing_work(self._env, self._membership.store, metadata, self._controller, self._config)
        metadata.subscribe(replicas.follow)
        metadata.subscribe(keeper.follow)
        metadata.subscribe(front.follow)
        metadata.subscribe(self._follow_cordons)
        replicas.subscribe(groups.follow)
        replicas.subscribe(transactions.follow)
        try:
            replicas.remove_strays(metadata.image)
        except DirectoryRefused as error:
            raise StartError(str(error)) from error
        replicas.follow(metadata.image, metadata.image)
        await replicas.settled()
        run = self._env.background.run
        await front.serve()
        maintenance = Maintenance(self._env, self._config, self._directories, replicas)
        run("Maintenance of the logs", maintenance.run())
        scrub = Scrub(self._env, self._config, self._directories)
        self._env.background.start("Scrub", scrub.run())
        cleaner = self._cleaner(metadata, replicas)
        self._env.background.start("Compaction", cleaner.run())
        watch = DirectoryWatch(self._env, self._directories, replicas, full, report, self._on_failure)
        run("Watching the data directories", watch.run())
        run("Looking for replicas that lag", keeper.run())
        run("Expiring offsets of groups", groups.run())
        self._watch_transactions(transactions)
        self._watch_certificates(metadata)
        lag = Lag(self._env, replicas, groups.ready_coordinators)
        replicas.subscribe(lag.follow)
        run("Measuring the lag of groups", lag.run())
        replication = self._replication_figures(replicas)
        others = ClusterFigures(metadata, self._config), TransactionFigures(transactions, transactions.markers)
        figures = [one.families for one in (cleaner, maintenance, scrub, replication, *others)]
        observation = Observation(self._env, metadata, replicas, figures)
        await front.open_admin(observation, lag, lambda: self._membership.problem)
        self._handover = Handover(self._env, link, metadata, replicas, broker.departing)
        return ",".join(f"{endpoint.host}:{endpoint.port}" for endpoint in endpoints)

    def _registration(self, image: MetadataImage, endpoints: tuple[Endpoint, ...]) -> BrokerImage:
        """This broker as it registers."""
        may_have_lost = self._directories.may_have_lost
        lacking = lacks_confirmed(image, self._config.node_id, self._directories)
        return BrokerImage(
            self._config.node_id,
            0,
            endpoints,
            self._config.rack,
            may_have_lost or bool(lacking),
            self._directories.ids,
            min_in_sync=self._config.integer("min.insync.replicas"),
            lacking=frozenset() if may_have_lost else lacking,
            format_level=levels.METADATA_LEVEL,
            log_dirs=tuple(os.path.abspath(path) for path in self._config.log_dirs),
            cordoned=parse_directories(value_text(self._config.value(CORDONED)) or ""),
        )

    def _replication_figures(self, replicas: ReplicaSet) -> ReplicationFigures:
        longest_ms = self._config.integer("transaction.max.timeout.ms")
        lease = self._membership.lease
        return ReplicationFigures(self._env, replicas, lease, lambda: self._membership.problem, longest_ms)

    def _watch_transactions(self, transactions: TransactionService) -> None:
        self._env.background.run("Aborting transactions past their timeout", transactions.abort_overdue())
        self._env.background.run("Expiring transactional ids", transactions.expire())

    def _watch_certificates(self, metadata: ClusterMetadata) -> None:
        if (tls := self._outside.tls) is not None:
            metadata.subscribe(partial(tls.follow, self._env))
            tls.follow(self._env, metadata.image, metadata.image)
            self._env.background.start("Watching certificates", tls.watch(self._env))

    def _broker(
        self,
        metadata: ClusterMetadata,
        link: ControllerLink,
        replicas: ReplicaSet,
        groups: GroupService,
        brokers: BrokerLink,
    ) -> Broker:
        assert self._controller is not None
        departed = Departed(self._env.clock)
        producer_ids = ProducerIds(self._controller)
        transactions, verifier = transaction_parts(
            self._env, self._config, metadata, link, replicas, producer_ids, brokers
        )
        metadata.subscribe(departed.follow)
        return Broker(
            id=self._config.node_id,
            env=self._env,
            config=self._config,
            metadata=metadata,
            departed=departed,
            departing=Departing(self._env, self._config, self._config.node_id, metadata, brokers),
            controller=self._controller,
            link=link,
            replicas=replicas,
            directories=self._directories,
            fetch_sessions=FetchSessions(
                self._env, self._config.integer("max.incremental.fetch.session.cache.slots")
            ),
            fetch_max_bytes=self._config.integer("fetch.max.bytes"),
            producer_ids=producer_ids,
            groups=groups,
            transactions=transactions,
            verifier=verifier,
            log_moves=self._log_moves,
        )

    def _replication(
        self, metadata: ClusterMetadata, peers: Peers
    ) -> tuple[ReplicaSet, InSyncKeeper, ControllerLink]:
        env, config, broker_id = self._env, self._config, self._config.node_id
        host = PartitionHost(broker_id, env.clock, self._membership.lease, silence_limit(config))
        throttle = ReplicationThrottle(env.clock, config)
        throttle.follow(MetadataImage(cluster_id=""), metadata.image)
        metadata.subscribe(throttle.follow)
        per_leader = config.integer("num.replica.fetchers")
        fetchers = Fetchers(env, broker_id, peers, _fetch_settings(config), per_leader, throttle.fetching)
        replicas = ReplicaSet(host, env, self._directories, self._topic_configs.of, fetchers)
        replicas.sending_limit = throttle.sending
        link = ControllerLink(env, metadata, peers, broker_id)
        max_lag_records = config.integer("headrace.replica.lag.max.messages")
        keeper = InSyncKeeper(
            env,
            link,
            lambda: metadata.image,
            replicas,
            LagLimits(
                config.integer("replica.lag.time.max.ms") / 1000, max_lag_records if max_lag_records >= 0 else None
            ),
        )
        host.following, host.in_sync = fetchers, keeper
        return replicas, keeper, link

    def _cleaner(self, metadata: ClusterMetadata, replicas: ReplicaSet) -> Cleaner:
        async def start_worker() -> Worker:
            return await WorkerProcess.start(COMPACTION_WORKER)

        return Cleaner(
            self._env,
            self._config,
            lambda: metadata.image.broker_configs,
            self._directories,
            replicas,
            self._outside.start_worker or start_worker,
        )

    async def _open_metadata(self) -> ClusterMetadata:
        try:
            if (store := store_path(self._config)) is not None:
                check_store_is_there(self._env.disk, store, self._config.log_dirs)
            for directory in self._config.log_dirs:
                self._env.disk.make_directory(directory)
            await self._membership.open()
            self._env.background.run("Keeping the session", self._membership.run())
            opened = partial(ClusterMetadata.opened, self._env, self._membership.store)
            return await patiently(self._env.clock, "The cluster's metadata cannot be read", opened)
        except (StoreError, DirectoryRefused, LevelRefused, OSError) as error:
            raise StartError(str(error)) from error

    async def _join(self, report: OfflineReport, broker: BrokerImage) -> None:
        """Announce this broker and stand for election as the controller; both again after a lost session."""
        assert self._controller is not None
        assert self._metadata is not None
        controller, metadata = self._controller, self._metadata

        async def rejoined() -> None:
            await metadata.catch_up(CHANGES, BROKER_IDS)
            if self._replicas is not None:
                await self._replicas.settled()  # others may lead what this broker led
            await controller.stand()
            report.tell_again()

        try:
            await self._membership.join(broker, rejoined)
            problem = "The other brokers are not known"
            await patiently(self._env.clock, problem, partial(metadata.catch_up, BROKER_IDS))
        except KafkaError as error:
            raise StartError(error.message or str(error)) from error
        except StoreError as error:
            raise StartError(str(error)) from error
        await self._forget_suspicion()
        metadata.subscribe(self._membership.follow)
        self.front.follow(metadata.image, metadata.image)
        self._follow_cordons(metadata.image, metadata.image)
        self._watch_for_isolation(controller, metadata)
        await controller.start()

    def _watch_for_isolation(self, controller: Controller, metadata: ClusterMetadata) -> None:
        assert self._brokers is not None
        isolation = Isolation(
            self._env,
            self._config.node_id,
            self._brokers,
            lambda: metadata.image,
            session_timeout(self._config),
            self._membership.withdraw,
        )
        self._membership.is_cut_off = isolation.is_cut_off
        controller.may_stand = lambda: not isolation.is_cut_off()
        self._env.background.run("Looking for the other brokers", isolation.run())

    async def _forget_suspicion(self) -> None:
        """That records may be lost stands in the store now, until the controller has acted on it.

        From here on it must not be said again: what this broker copies, and confirms, is not lost by a restart.
        """
        try:
            await self._env.run_blocking(self._directories.trust)
        except OSError as error:
            raise StartError(f"The data directory cannot be written: {error}") from error

    async def _retire(self) -> None:
        """Others lead now: let them control as well, and be asked into no in-sync set in the meantime."""
        if self._replicas is not None:
            self._replicas.stop_following()
        if self._controller is not None and len(self.image.brokers) > 1:
            await self._controller.hand_over()

    async def stop(self, hand_over: bool = True) -> None:
        """Without `hand_over`, when all brokers end together and nobody is left to take over."""
        if hand_over and self._handover is not None and self._config.value("controlled.shutdown.enable"):
            await self._handover.run()
            await self._retire()
        if self._front is not None:
            self._front.stop_accepting()
        if self._groups is not None:
            self._groups.close()
        if self._transactions is not None:
            self._transactions.close()
        if self._front is not None:
            await self._front.close()
        self._log_moves.close()
        await self._env.background.close()
        if self._brokers is not None:
            self._brokers.close()
        if self._peers is not None:
            self._peers.close()
        if self._controller is not None:
            await self._controller.close()
        if self._metadata is not None:
            await self._metadata.close()
        await self._membership.close()
        if self._replicas is not None:
            try:
                await self._env.run_blocking(self._replicas.save_high_watermarks)
            except OSError as error:  # a full disk: the next start asks the others, as after a crash
                log.warning("The high watermarks could not be written: %s", error)
        await self._env.run_blocking(self._directories.close)

    async def _load_logs(self, image: MetadataImage) -> None:
        def config_of(partition: TopicPartition, topic_id: TopicId) -> LogConfig:
            topic = image.topics_by_id.get(topic_id)
            return self._topic_configs.of(topic, image) if topic is not None else LogConfig()

        try:
            await self._env.run_blocking(lambda: self._directories.open(image.cluster_id, config_of))
        except (DirectoryRefused, OSError) as error:
            raise StartError(str(error)) from error

    def _follow_cordons(self, old: MetadataImage, new: MetadataImage) -> None:
        local = new.brokers.get(self._config.node_id)
        if local is not None:
            self._directories.cordoned = cordoned_directories(new, local)


def transaction_parts(
    env: Env,
    config: BrokerConfig,
    metadata: ClusterMetadata,
    topics: TopicCreator,
    replicas: ReplicaSet,
    producer_ids: ProducerIds,
    brokers: BrokerLink,
) -> tuple[TransactionService, PartitionVerifier]:
    in_time = TRANSACTION_REQUEST_SECONDS
    write = partial(brokers.ask, answer=WriteTxnMarkersResponse, timeout_s=in_time)
    ask = partial(brokers.ask, answer=AddPartitionsToTxnResponse, timeout_s=in_time)

    def verifies() -> bool:
        return current_boolean(config, metadata.image.broker_configs, "transaction.partition.verification.enable")

    markers = MarkerSender(env, lambda: metadata.image, partial(write_at_once, replicas), write)
    transactions = TransactionService(env, config, metadata, topics, replicas, producer_ids.allocate, markers)
    return transactions, PartitionVerifier(env, transactions, config.node_id, ask, verifies)


async def answer_as_controller(broker: Broker, request: Request, version: int) -> Response:
    """A request of this broker to the controller, which is this broker too."""
    if not broker.controller.active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "This broker is no longer the controller.")
    return await answer_here(broker, request, version)


async def answer_here(broker: Broker, request: Request, version: int) -> Response:
    """A request of this broker to itself."""
    api = APIS[request.api_key]
    assert api.cold is not None
    listener = broker.config.inter_broker_listener.name
    context = Context(
        broker, min(version, api.versions.stop - 1), f"{BROKER_CLIENT_ID}{broker.id}", ANONYMOUS, "", listener
    )
    answer = api.cold(context, request)
    return answer if isinstance(answer, Response) else await answer


def _fetch_settings(config: BrokerConfig) -> FetchSettings:
    return FetchSettings(
        config.integer("replica.fetch.wait.max.ms"),
        config.integer("replica.fetch.min.bytes"),
        config.integer("replica.fetch.response.max.bytes"),
        config.integer("replica.fetch.max.bytes"),
        config.integer("replica.fetch.backoff.ms") / 1000,
    )


def settle_memory() -> None:
    """What a start made stays, and needs no collector; the hot path makes no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
