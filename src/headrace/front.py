"""What others connect to: the listeners behind one dispatcher and one gate, and the admin port."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic import current_integer
from headrace.env import Env
from headrace.failures import StartError
from headrace.handlers import load_all
from headrace.handlers.broker import Broker
from headrace.metadata.image import Endpoint, MetadataImage
from headrace.metrics.exposition import CONTENT_TYPE, render
from headrace.outside import Outside
from headrace.server.admin import AdminServer, Page, PageMaker, json_page
from headrace.server.authentication import listeners_without_users
from headrace.server.connection_rates import rates_of
from headrace.server.connections import ConnectionLimits
from headrace.server.dispatch import Dispatcher
from headrace.server.guards import GateKeeper
from headrace.server.listener import Listener, SocketOptions
from headrace.services.lag import Lag, lag_families, lag_json
from headrace.services.observation import Observation
from headrace.services.token_keys import KeysUnusable

log = logging.getLogger(__name__)

ADMIN_PORT_DISTANCE = 552
"""From the client port: 9092 and 9644, 9093 and 9645."""
DRAIN_SECONDS = 2.0
"""What requests under way get to finish in when the broker stops."""


class Front:
    def __init__(self, env: Env, config: BrokerConfig, outside: Outside, broker: Broker) -> None:
        load_all()
        self._env = env
        self._config = config
        self._outside = outside
        self.listeners: list[Listener] = []
        self.admin: AdminServer | None = None
        self.dispatcher = Dispatcher(
            broker, config.integer("socket.request.max.bytes"), config.integer("queued.max.request.bytes")
        )
        self.gate = GateKeeper(broker, self.dispatcher)
        self._rates = rates_of(config, env.clock)

    async def bind(self, image: MetadataImage) -> tuple[Endpoint, ...]:
        """Take the ports; connections wait until `serve`."""
        try:
            await self.gate.open_token_keys()
        except KeysUnusable as error:
            raise StartError(str(error)) from error
        sockets = SocketOptions(
            backlog=self._config.integer("socket.listen.backlog.size"),
            send_buffer_bytes=self._config.integer("socket.send.buffer.bytes"),
            receive_buffer_bytes=self._config.integer("socket.receive.buffer.bytes"),
        )
        limits = self._connection_limits(image)
        endpoints = []
        for wanted, advertised in zip(self._config.listeners, self._config.advertised_listeners, strict=True):
            listener = self._outside.make_listener(self._env, wanted.name, limits, sockets)
            try:
                await listener.open(self.dispatcher, wanted.host or None, wanted.port)
            except OSError as error:
                another = f"--override listeners={wanted.name}://{wanted.host}:{(wanted.port + 100) % 2**16}"
                raise StartError(f"Cannot listen on {wanted}: {_bind_problem(error, another)}") from error
            listener.connections.rates = self._rates
            self.listeners.append(listener)
            endpoints.append(
                Endpoint(
                    listener=wanted.name,
                    host=advertised.host,
                    port=advertised.port or listener.port,
                    security_protocol=wanted.security_protocol,
                )
            )
        self._tell_where_nobody_can_log_in(image)
        return tuple(endpoints)

    def _tell_where_nobody_can_log_in(self, image: MetadataImage) -> None:
        for name in listeners_without_users(self._config, image):
            mechanisms = self._config.sasl[name].mechanisms
            log.warning(
                "Nobody can log in at the listener %s: it offers only %s, and no user has a password for that. "
                "Stop the broker and add the first user with `headrace user add NAME --mechanism %s --offline "
                "FILE`, where FILE has the broker's settings; where another listener lets you in, leave that out",
                *(name, " and ".join(mechanisms), mechanisms[0]),
            )

    async def serve(self) -> None:
        for listener in self.listeners:
            await listener.serve()
            self._env.background.run(f"Closing idle connections of {listener.name}", listener.sweep_idle())

    def _connection_limits(self, image: MetadataImage) -> ConnectionLimits:
        configs = image.broker_configs
        return ConnectionLimits(
            total=current_integer(self._config, configs, "max.connections"),
            per_address=current_integer(self._config, configs, "max.connections.per.ip"),
            idle_seconds=self._config.integer("connections.max.idle.ms") / 1000,
        )

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Limits may have changed."""
        if old.broker_configs is not new.broker_configs:
            for listener in self.listeners:
                listener.connections.limits = self._connection_limits(new)
        self._rates.follow_image(self._config, old, new)

    # -- the admin port

    async def open_admin(self, observation: Observation, lag: Lag, problem: Callable[[], str | None]) -> None:
        """Metrics and health. A default port that is taken is no reason not to start; a chosen one is.

        `problem` says why the broker is not ready to serve, if it is not.
        """
        if not self._outside.serves_admin:
            return
        self._env.background.run("Measuring the loop", observation.probe_loop())
        host = self._config.text("headrace.admin.host") or ""
        port = self._config.integer("headrace.admin.port")
        admin = self.admin = AdminServer(self._pages(observation, lag, problem), self.gate.admin_login())
        try:
            await admin.open(host, port if port >= 0 else _default_admin_port(self.listeners[0].port))
        except OSError as error:
            if port >= 0:
                another = "--override headrace.admin.port=PORT"
                raise StartError(
                    f"Cannot serve metrics on {host}:{port}: {_bind_problem(error, another)}"
                ) from error
            await admin.open(host, 0)
            log.warning("The default admin port is in use; using another one")
        log.info("Metrics and health are on http://%s:%d", host, admin.port)

    def _pages(
        self, observation: Observation, lag: Lag, problem: Callable[[], str | None]
    ) -> dict[str, PageMaker]:
        async def metrics() -> Page:
            connections = {listener.name: len(listener.connections) for listener in self.listeners}
            groups = await lag.groups()
            families = [*observation.families(connections), *self.dispatcher.families()]
            families += [*self.gate.quotas.families(), *self._rates.families()]
            # With thousands of groups the text is megabytes.
            text = await self._env.run_blocking(lambda: render([*families, *lag_families(groups)]))
            return Page(text, CONTENT_TYPE)

        async def lag_page() -> Page:
            groups = await lag.groups()
            return await self._env.run_blocking(lambda: json_page(lag_json(groups)))

        def ready() -> Page:
            why = problem()
            return Page("ready\n") if why is None else Page(f"{why}\n", status=503)

        return {
            "/metrics": metrics,
            "/healthz": lambda: Page("ok\n"),
            "/readyz": ready,
            "/lag": lag_page,
        }

    # -- stopping

    def stop_accepting(self) -> None:
        if self.admin is not None:
            self.admin.close()
        for listener in self.listeners:
            listener.stop_accepting()

    async def close(self) -> None:
        """Requests under way may finish; then the connections are closed."""
        await self.dispatcher.drain(DRAIN_SECONDS)
        for listener in self.listeners:
            listener.connections.close_all()


_BIND_PROBLEMS = {
    errno.EADDRINUSE: "the port is already in use. Stop the process that uses it, or choose another port: "
    "`{another}`.",
    errno.EADDRNOTAVAIL: "this machine does not have that address. The address that clients connect to, if it is "
    "another, belongs in advertised.listeners.",
    errno.EACCES: "only root may use ports below 1024. Choose another port: `{another}`.",
}


def _bind_problem(error: OSError, another: str) -> str:
    """`another` is how to choose another port."""
    # Since Python 3.13 asyncio says no more than this of an address that the machine does not have.
    nowhere = error.errno is None and str(error).startswith("could not bind on any address")
    problem = _BIND_PROBLEMS.get(errno.EADDRNOTAVAIL if nowhere else error.errno or 0)
    return problem.format(another=another) if problem else error.strerror or str(error)


def _default_admin_port(client_port: int) -> int:
    port = client_port + ADMIN_PORT_DISTANCE
    return port if port < 2**16 else 0
