from typing import Any

from yaml.error import Mark as Mark
from yaml.error import MarkedYAMLError as MarkedYAMLError
from yaml.error import YAMLError as YAMLError
from yaml.nodes import MappingNode as MappingNode
from yaml.nodes import Node as Node
from yaml.nodes import ScalarNode as ScalarNode
from yaml.nodes import SequenceNode as SequenceNode

class SafeLoader: ...

def compose(stream: str, Loader: type[SafeLoader]) -> Node | None: ...  # noqa: N803
def safe_dump(data: Any, *, sort_keys: bool = ..., allow_unicode: bool = ...) -> str: ...
def safe_load(stream: str) -> Any: ...
