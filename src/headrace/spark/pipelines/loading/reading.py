"""YAML with places: every value knows its line, and a mistake becomes a `Problem` and does not end the reading.

- `Document` is one file while it is read: it collects the problems.
- `Fields` is one mapping of it whose keys are known. Unknown and repeated keys are problems at once; a value of
  the wrong kind is a problem when it is asked for, and then counts as absent.
- `${NAME}` and `${NAME:-default}` in a value are taken from the environment; `$${` stands for `${`.
- Nodes are composed and never constructed: no tag of the file can make an object. `<<` merges mappings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import yaml
from yaml.reader import ReaderError

from headrace.spark.pipelines.definition import PipelineError, Place, Problem
from headrace.spark.pipelines.durations import parse_milliseconds
from headrace.spark.pipelines.loading.keys import Keys
from headrace.spark.pipelines.nearest import nearest, suggestion

MAX_FILE_BYTES = 1_000_000
_TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _MERGE = (f"{_TAG}{kind}" for kind in ("null", "bool", "merge"))
_SCALARS = frozenset(f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "timestamp"))
_TRUE = frozenset({"true", "yes", "on"})
_VARIABLE = re.compile(r"\$?\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HOW_DURATIONS = "Write it as 500ms, 30s, 10m, 2 hours or 1 day."


class Text(NamedTuple):
    """A text, and the position of its first character in the file."""

    value: str
    at: Place
    indent: int
    folded: str


class Document:
    def __init__(self, path: str, text: str, environment: Mapping[str, str]) -> None:
        self.path = path
        self.text = text
        self.environment = environment
        self.problems: list[Problem] = []

    @classmethod
    def read(cls, path: str, environment: Mapping[str, str]) -> Document:
        """PipelineError for a file that is not there or not text."""
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            raise _unreadable(path, "there is no such file") from None
        except IsADirectoryError:
            raise _unreadable(path, "this is a directory; a pipeline is a YAML file") from None
        except OSError as error:
            raise _unreadable(path, f"cannot be read: {error.strerror}") from None
        if len(data) > MAX_FILE_BYTES:
            raise _unreadable(path, f"more than {MAX_FILE_BYTES} bytes: this is not a pipeline file")
        try:
            return cls(path, data.decode("utf-8-sig"), environment)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise PipelineError([Problem(path, line, 1, "this is not text in UTF-8")]) from None

    def root(self) -> yaml.Node | None:
        """The one document in the file. PipelineError when it is not YAML."""
        try:
            return yaml.compose(self.text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            raise PipelineError([self._not_yaml(error)]) from None
        except ReaderError as error:
            line = self.text.count("\n", 0, error.position) + 1
            what = f"not YAML: the character {_code_point(error.character)} is not allowed"
            raise PipelineError([Problem(self.path, line, 1, what, "Remove it.")]) from None

    def _not_yaml(self, error: yaml.MarkedYAMLError) -> Problem:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = f"not YAML: {error.problem or error.context}"
        advice = None
        if "another document" in what:
            return Problem(
                self.path, line, column, "a second document begins here", "One file holds one pipeline."
            )
        if mark is not None and self._line(line)[mark.column : mark.column + 1] == "\t":
            advice = "Indent with spaces, not tabs."
        elif error.context_mark is not None and error.context_mark.line != (mark.line if mark else -1):
            advice = (
                f"It began at line {error.context_mark.line + 1}; look for a missing quote, bracket or indent."
            )
        elif "mapping values are not allowed" in what:
            advice = 'Text with ": " in it needs quotes; keys of one mapping must be aligned.'
        return Problem(self.path, line, column, what, advice)

    def problem(self, node: yaml.Node, what: str, advice: str | None = None) -> None:
        mark = node.start_mark
        self.problems.append(Problem(self.path, mark.line + 1, mark.column + 1, what, advice))

    def resolve(self, path: str) -> str:
        """A relative path is relative to the file; an address or an absolute path stays as it is."""
        if "://" in path:
            return path
        return os.path.normpath(
            os.path.join(os.path.dirname(os.path.abspath(self.path)), os.path.expanduser(path))
        )

    def scalar(self, node: yaml.Node, what: str) -> str | None:
        """Any single value, as it is written, with variables filled in."""
        if not isinstance(node, yaml.ScalarNode):
            shown = "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
            self.problem(node, f"{what} needs one value, not {shown}")
        elif node.tag == _NULL:
            self.problem(node, f"{what} is empty", "Give it a value, or leave the key out.")
        elif node.tag not in _SCALARS:
            self.problem(node, f"{what} has the tag {node.tag}", "Tags have no meaning here: leave it out.")
        else:
            return self._filled_in(node)
        return None

    def string(self, node: yaml.Node, what: str) -> str | None:
        """One value that is meant as text: not `yes` or `true`, which YAML takes for something else."""
        value = self.scalar(node, what)
        if value is None:
            return None
        if node.tag == _BOOL:
            self.problem(
                node, f"{what} is a text, and YAML reads {value} as true or false", f'Quote it: "{value}"'
            )
            return None
        if not value.strip():
            self.problem(node, f"{what} is empty", "Give it a value, or leave the key out.")
            return None
        return value

    def _filled_in(self, node: yaml.ScalarNode) -> str | None:
        missing = []

        def value_of(match: re.Match[str]) -> str:
            name, default = match[1], match[2]
            if match[0].startswith("$$"):
                return match[0][1:]
            if name not in self.environment and default is None:
                missing.append(name)
            return self.environment.get(name) or default or ""

        value = _VARIABLE.sub(value_of, node.value)
        for name in missing:
            advice = f"Set it, or give a default: ${{{name}:-value}}"
            self.problem(node, f"the environment has no variable {name}", advice)
        return None if missing else value

    def text_of(self, node: yaml.ScalarNode, value: str) -> Text:
        """Where the text itself begins: a block on the line after its mark, a quoted one after the quote."""
        start, end = node.start_mark, node.end_mark
        if node.style not in ("|", ">"):
            at = Place(start.line + 1, start.column + (2 if node.style else 1))
            folded = self.text[start.index + (1 if node.style else 0) : end.index] if end.line > start.line else ""
            return Text(value, at, 0, folded)
        indent = self._block_indent(node)
        body = self.text[start.index : end.index].partition("\n")[2]
        at = Place(start.line + 2, 1 if node.style == ">" else indent + 1)
        return Text(value, at, indent, body if node.style == ">" else "")

    def _block_indent(self, node: yaml.ScalarNode) -> int:
        for number, line in enumerate(node.value.split("\n"), start=node.start_mark.line + 2):
            if line.strip():
                raw = self._line(number)
                return (
                    len(raw) - len(raw.lstrip()) if node.style == ">" else len(raw.rstrip()) - len(line.rstrip())
                )
        return 0

    def _line(self, number: int) -> str:
        lines = self.text.splitlines()
        return lines[number - 1] if number <= len(lines) else ""


class Fields:
    """One mapping with known keys. `what` names it in messages: `source raw`."""

    def __init__(
        self,
        document: Document,
        node: yaml.MappingNode,
        keys: Keys,
        what: str,
        *,
        named_at: yaml.Node | None = None,
    ) -> None:
        self.document = document
        self.node = named_at or node
        """The place at which to report a missing key: the name of the mapping, if it has one."""
        self.what = what
        self.nodes: dict[str, yaml.Node] = {}
        self.misspelt: set[str] = set()
        """Keys that are probably meant by unknown ones: that they are missing is not told as well."""
        for name, key_node, value in entries(document, node, what):
            if name not in keys:
                all_keys = f"The keys here: {', '.join(keys)}."
                document.problem(key_node, f"{what} has no key {name}", suggestion(name, keys, all_keys))
                self.misspelt.update(filter(None, [nearest(name, keys)]))
            else:
                self.nodes[name] = value
        for name, key in keys.items():
            if key.required and name not in self.nodes and name not in self.misspelt:
                document.problem(self.node, f"{what} needs {name}", key.meaning)

    def __contains__(self, key: str) -> bool:
        return key in self.nodes

    def places(self) -> dict[str, Place]:
        return {
            key: Place(value.start_mark.line + 1, value.start_mark.column + 1) for key, value in self.nodes.items()
        }

    def problem(self, key: str, what: str, advice: str | None = None) -> None:
        self.document.problem(self.nodes.get(key, self.node), what, advice)

    def string(self, key: str) -> str | None:
        node = self.nodes.get(key)
        return None if node is None else self.document.string(node, key)

    def text(self, key: str) -> Text | None:
        node = self.nodes.get(key)
        value = self.string(key)
        if value is None:
            return None
        assert isinstance(node, yaml.ScalarNode)
        return self.document.text_of(node, value)

    def strings(self, key: str) -> tuple[str, ...]:
        """A list, or one value, which means a list of one."""
        node = self.nodes.get(key)
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            one = self.document.string(node, key)
            return () if one is None else (one,)
        if not node.value:
            self.problem(key, f"{key} is an empty list")
        found = [self.document.string(item, f"an item of {key}") for item in node.value]
        return tuple(item for item in found if item is not None)

    def choice(self, key: str, allowed: Sequence[str]) -> str | None:
        value = self.string(key)
        if value is None or value in allowed:
            return value
        near = nearest(value, allowed)
        listed = f"It is one of {', '.join(allowed)}."
        self.problem(key, f"{key} cannot be {value}", listed if near is None else f"Did you mean {near}? {listed}")
        return None

    def milliseconds(self, key: str, *, least: int = 0) -> int | None:
        value = self.string(key)
        if value is None:
            return None
        try:
            found = parse_milliseconds(value)
        except ValueError as error:
            self.problem(key, f"{key}: {error}", _HOW_DURATIONS)
            return None
        if found < least:
            self.problem(key, f"{key} must be greater than zero", _HOW_DURATIONS)
            return None
        return found

    def count(self, key: str) -> int | None:
        """A whole number from 1."""
        node = self.nodes.get(key)
        value = None if node is None else self.document.scalar(node, key)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) < 1:
            self.problem(key, f"{key} needs a whole number from 1, not {value}")
            return None
        return int(value)

    def flag(self, key: str) -> bool | None:
        """True or false when the value is one of these; None when it is absent or something else."""
        node = self.nodes.get(key)
        if not isinstance(node, yaml.ScalarNode) or node.tag != _BOOL:
            return None
        return node.value.lower() in _TRUE

    def table(self, key: str) -> dict[str, str]:
        """A mapping of names to single values, each as it is written."""
        node = self.mapping(key)
        found: dict[str, str] = {}
        if node is not None:
            for name, _, value_node in entries(self.document, node, key):
                if isinstance(value_node, yaml.MappingNode):
                    self._nested(name, value_node)
                    continue
                value = self.document.scalar(value_node, name)
                if value is not None:
                    found[name] = value.lower() if value_node.tag == _BOOL else value
        return found

    def _nested(self, name: str, node: yaml.MappingNode) -> None:
        inner = [one.value for one, _ in node.value if isinstance(one, yaml.ScalarNode)]
        advice = f"Write it in one line: {name}.{inner[0]}: ..." if inner else None
        self.document.problem(node, f"{name} needs one value, not a mapping", advice)

    def table_places(self, key: str) -> dict[str, Place]:
        """Where the names of a table stand, as `key.name`."""
        node = self.nodes.get(key)
        if not isinstance(node, yaml.MappingNode):
            return {}
        return {
            f"{key}.{name.value}": Place(name.start_mark.line + 1, name.start_mark.column + 1)
            for name, _ in node.value
            if isinstance(name, yaml.ScalarNode)
        }

    def mapping(self, key: str) -> yaml.MappingNode | None:
        node = self.nodes.get(key)
        if node is None:
            return None
        if not isinstance(node, yaml.MappingNode):
            self.problem(key, f"{key} needs a mapping of keys to values")
            return None
        return node


def entries(document: Document, node: yaml.MappingNode, what: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Name, its node and the value's node. A name given twice is a problem; `<<` adds what is not there."""
    seen: dict[str, yaml.Node] = {}
    own = [(name, value) for name, value in node.value if name.tag != _MERGE]
    for name_node, value in own:
        if not isinstance(name_node, yaml.ScalarNode):
            document.problem(name_node, f"{what} has a key that is not a name")
            continue
        name = name_node.value
        if name in seen:
            first = seen[name].start_mark.line + 1
            document.problem(name_node, f"{what} has {name} twice", f"The first is at line {first}.")
            continue
        seen[name] = name_node
        yield name, name_node, value
    for name_node, value in _merged(node):
        if isinstance(name_node, yaml.ScalarNode) and name_node.value not in seen:
            seen[name_node.value] = name_node
            yield name_node.value, name_node, value


def _merged(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    for name, value in node.value:
        if name.tag == _MERGE:
            for other in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(other, yaml.MappingNode) and other is not node:
                    yield from ((key, item) for key, item in other.value if key.tag != _MERGE)


def _code_point(character: int | str) -> str:
    return f"U+{character if isinstance(character, int) else ord(character):04X}"


def _unreadable(path: str, what: str) -> PipelineError:
    return PipelineError([Problem(path, 1, 1, what)])
