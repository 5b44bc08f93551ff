class KazooState:
    SUSPENDED: str
    CONNECTED: str
    LOST: str

class EventType:
    NONE: str

class WatchedEvent:
    type: str
    path: str | None

class ZnodeStat:
    version: int
