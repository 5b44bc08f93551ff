"""What a controller does by itself: started on every broker, idle on those that are not the controller."""

from __future__ import annotations

from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import Store
from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller
from headrace.metadata.format_level import LevelRaiser
from headrace.metadata.leaders import Leaders
from headrace.metadata.preferred_leaders import PreferredLeaders


def start_standing_work(
    env: Env, store: Store, metadata: ClusterMetadata, controller: Controller, config: BrokerConfig
) -> None:
    """Leaders for partitions, preferred ones in time, and the level of the metadata's format."""
    Leaders(env, metadata, controller, config.node_id, config).start()
    preferred = PreferredLeaders(env, metadata, controller, config)
    env.background.run("Electing preferred leaders", preferred.run())
    LevelRaiser(env, store, metadata, controller).start()
