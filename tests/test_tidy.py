"""The house rules, held by a test: layers, banned calls, sizes, words, registrations, generated pages.

Each rule is a function from source text to problems. It runs over the project, and over a bad sample that it must
find fault with, so that no rule can quietly stop working.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "headrace"

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 600
MAX_CONSTRUCTOR_ARGUMENTS = 7

LONG_FUNCTIONS: frozenset[str] = frozenset()
LONG_FILES: frozenset[str] = frozenset()
"""Exceptions, as paths or path::function. These lists only ever shrink."""

CORE = ("services", "security", "metrics", "replication")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "__init__": (),
    "model": (),
    "wire": ("model",),
    "records": ("model",),
    "env": ("model",),
    "config": ("model",),
    "metrics": ("model",),
    "storage": ("records", "env"),
    "coordination": ("env",),
    "groups": ("model",),
    "transactions": ("model",),
    "security": ("model",),
    "metadata": ("coordination", "config", "security"),
    "client": ("wire", "records", "env", "security", "config"),
    "replication": ("storage", "metadata", "client"),
    "services": ("groups", "transactions", "replication", "wire", "metrics"),
    "handlers": CORE,
    "server": ("handlers", *CORE),
    "outside": ("server", *CORE),
    "failures": (),
    "front": ("outside", "failures", "server", *CORE),
    "node": ("front", "outside", "failures", "server", *CORE),
    "running": ("node",),
    "connect": ("client", "metrics"),
    "spark": ("client", "connect"),
    "cli": ("running", "node", "failures", "client", "storage", "spark", "connect"),
    "__main__": ("cli",),
    "testing": ("node", "failures", "client", "connect", "spark"),
}
"""Who may import whom, and with it what those may import."""

EFFECTS_ALLOWED = (
    "env/",
    "cli/",
    "testing/",
    "server/socket_link",
    "server/file_sender",
    "server/tls/outgoing",
    "coordination/sqlite",
    "coordination/zookeeper",
    "spark/",
    "connect/",
)
"""Where the world is touched directly: its seam, the edges, and drivers that own their library (D8)."""

BANNED_MODULES = frozenset({"time", "random", "uuid", "secrets", "shutil", "tempfile", "subprocess"})
BANNED_CALLS = frozenset({"asyncio.sleep", "print", "open", "input", "eval", "exec", "breakpoint"})
PURE_OS = frozenset(
    {
        "os.path.join",
        "os.path.basename",
        "os.path.dirname",
        "os.path.split",
        "os.path.splitext",
        "os.path.abspath",
    }
)

# Put together here so that the rules do not find themselves.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:" + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me")) + r")/\w")
HOSTS = re.compile(
    r"https?://[^\s/\"')]*(?:"
    + "|".join(("py" + "pi", "python" + "hosted", "nex" + "us", "artifact" + "ory"))
    + ")"
    r"|--(?:extra-)?index-" + "url|trusted-" + "host"
)
FRAGMENT = re.compile(r"\s*(Of|Those|Whom|So (many|much|often)) ")

TEXT_SUFFIXES = frozenset(
    {".py", ".md", ".toml", ".txt", ".c", ".sh", ".properties", ".json", ".yml", ".yaml", ""}
)
TEXT_FOLDERS = ("src", "tests", "bench", "scripts", "examples", "docs", ".ci")


@functools.cache
def parsed(source: str) -> ast.Module:
    """Every rule reads the same files."""
    return ast.parse(source)


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def text_files() -> Iterator[Path]:
    candidates = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    for folder in TEXT_FOLDERS:
        candidates += (path for path in (ROOT / folder).rglob("*") if path.is_file())
    for path in candidates:
        if path.suffix in TEXT_SUFFIXES and not {"__pycache__", "results", "golden"} & set(path.parts):
            yield path


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def reachable(layer: str) -> set[str]:
    found: set[str] = set()
    pending = [layer]
    while pending:
        for other in MAY_IMPORT[pending.pop()]:
            if other not in found:
                found.add(other)
                pending.append(other)
    return found


def imported_layers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "headrace":
                layer = parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "__init__"
                yield getattr(node, "lineno", 0), layer


def layer_problems(layer: str, source: str) -> list[str]:
    if layer not in MAY_IMPORT:
        return [f"{layer} is not in the table of layers"]
    allowed = reachable(layer) | {layer, "__init__"}
    return [
        f"line {line}: {layer} may not import {other}"
        for line, other in imported_layers(parsed(source))
        if other not in allowed
    ]


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def effect_problems(source: str) -> list[str]:
    """Calls that reach the world behind the back of `Env`."""
    problems: list[str] = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else ""
            roots = {(module or alias.name).split(".")[0] for alias in node.names}
            problems += [f"line {node.lineno}: imports {root}" for root in sorted(roots & BANNED_MODULES)]
            if module in ("os", "os.path"):
                problems.append(f"line {node.lineno}: imports out of {module}; write os.path.join")
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in BANNED_CALLS or (name.startswith("os.") and name not in PURE_OS):
                problems.append(f"line {node.lineno}: calls {name}")
    return problems


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        name = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{node.name}" if prefix else node.name
            if not isinstance(node, ast.ClassDef):
                yield name, node
        yield from functions(node, name)


def size_problems(path: str, source: str) -> list[str]:
    problems: list[str] = []
    lines = source.count("\n")
    if lines > MAX_FILE_LINES and path not in LONG_FILES:
        problems.append(f"{lines} lines; split the file at {MAX_FILE_LINES}")
    for name, function in functions(parsed(source)):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MAX_FUNCTION_LINES and f"{path}::{name}" not in LONG_FUNCTIONS:
            problems.append(f"{name} has {length} lines")
        arguments = len(function.args.args) + len(function.args.kwonlyargs) - 1
        if function.name == "__init__" and arguments > MAX_CONSTRUCTOR_ARGUMENTS:
            problems.append(f"{name} takes {arguments} arguments")
    return problems


def docstring_problems(source: str) -> list[str]:
    tree = parsed(source)
    return [] if not tree.body or ast.get_docstring(tree) else ["the module does not say what it is for"]


def failure_problems(source: str) -> list[str]:
    """A caught `Exception` hides our own bugs; only the two places that must survive them may do it."""
    return [
        f"line {node.lineno}: catches everything"
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or dotted(node.type) in ("Exception", "BaseException"))
        and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
    ]


def word_problems(text: str) -> list[str]:
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in (
            ("unfinished", UNFINISHED),
            ("a path of one machine", MACHINE_PATHS),
            ("a download host", HOSTS),
        ):
            if match := pattern.search(line):
                problems.append(f"line {number}: {what}: {match.group()}")
    return problems


def handler_problems(docstring: str | None, registered: list[tuple[int, str, range]]) -> list[str]:
    """An API's file: one registration, and a first line such as `Heartbeat (12), v0-4. ...` that agrees."""
    if len(registered) != 1:
        return [f"registers {len(registered)} APIs instead of one"]
    key, name, versions = registered[0]
    last = versions.stop - 1
    span = f"v{versions.start}-{last}" if last > versions.start else f"v{last}"
    expected = f"{name} ({key}), {span}."
    if (docstring or "").startswith(expected):
        return []
    return [f"its docstring must begin with {expected!r}, not {(docstring or '').splitlines()[:1]}"]


def type_names(source: str) -> Iterator[str]:
    """The names of the classes and type aliases that a module defines for others."""
    for node in parsed(source).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if not (isinstance(value, ast.Call) and dotted(value.func) == "TypeVar"):
                pass
            case _:
                continue
        if name[0].isupper() and not name.isupper():
            yield name


def report(problems: dict[str, list[str]]) -> None:
    found = [f"{path}: {problem}" for path, listed in problems.items() for problem in listed]
    assert not found, "\n" + "\n".join(found)


def over(paths: Iterator[Path], rule: Callable[[Path, str], list[str]]) -> dict[str, list[str]]:
    return {name_of(path): rule(path, path.read_text(encoding="utf-8")) for path in paths}


def test_layers() -> None:
    report(over(python_files("src/headrace"), lambda path, text: layer_problems(layer_of(path), text)))
    assert layer_problems("storage", "from headrace.handlers import registry")
    assert layer_problems("model", "import headrace.wire.schema")
    assert layer_problems("wire", "def f():\n    from headrace.storage import log")
    assert layer_problems("nowhere", "")
    assert not layer_problems("replication", "from headrace.records.batch import BatchHeader\nimport os")


def test_the_architecture_page_has_the_table_of_layers() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|[^|]*\|([^|]*)\|$", (ROOT / "docs/architecture.md").read_text(), re.M)
    page = {
        name.removesuffix("/").removesuffix(".py"): set(re.findall(r"`(\w+)`", imports))
        for names, imports in rows
        for name in re.findall(r"`([^`]+)`", names)
    }
    assert page == {name: set(others) for name, others in MAY_IMPORT.items() if not name.startswith("__")}


def test_the_tests_that_guarantees_name_exist() -> None:
    page = (ROOT / "docs/guarantees.md").read_text().partition("## Tests for each promise")[2]
    sources = {name_of(path): path.read_text() for path in python_files("tests")}
    for name in re.findall(r"`(test_\w+)", page):
        found = name in {Path(path).stem for path in sources} or any(
            f"def {name}" in text for text in sources.values()
        )
        assert found, name
    named = re.findall(r"`(tests/[\w/.]+)`", page)
    assert len(named) > 20
    assert not [path for path in named if not (ROOT / path).exists()]


def test_effects_go_through_env() -> None:
    def rule(path: Path, text: str) -> list[str]:
        inside = path.relative_to(PACKAGE).as_posix()
        return [] if inside.startswith(EFFECTS_ALLOWED) else effect_problems(text)

    report(over(python_files("src/headrace"), rule))
    for sample in (
        "import time",
        "from time import monotonic",
        "import random as r",
        "from uuid import uuid4",
        "import os\nos.unlink('x')",
        "import os\nos.path.exists('x')",
        "from os import unlink",
        "import asyncio\nasync def f(): await asyncio.sleep(1)",
        "print(1)",
        "open('x')",
    ):
        assert effect_problems(sample), sample
    assert not effect_problems("import os\nos.path.join('a', 'b')")


def test_sizes() -> None:
    report(
        over(
            python_files("src", "tests", "bench", "scripts", "examples"),
            lambda path, text: size_problems(name_of(path), text),
        )
    )
    assert size_problems("x.py", "pass\n" * (MAX_FILE_LINES + 1))
    assert size_problems("x.py", "def f():\n" + "    pass\n" * MAX_FUNCTION_LINES)
    assert size_problems("x.py", "class A:\n    def __init__(self, a, b, c, d, e, f, g, h): pass")
    assert not size_problems("x.py", "class A:\n    def __init__(self, a, b, c, d, e, f, g): pass")


def test_exceptions_still_exist() -> None:
    """A list of exceptions that names what is gone, or short by now, has not been shortened."""
    for path in LONG_FILES:
        assert (ROOT / path).read_text().count("\n") > MAX_FILE_LINES, path
    for entry in LONG_FUNCTIONS:
        path, _, name = entry.partition("::")
        function = dict(functions(parsed((ROOT / path).read_text())))[name]
        assert (function.end_lineno or 0) - function.lineno + 1 > MAX_FUNCTION_LINES, entry


def test_every_module_says_what_it_is_for() -> None:
    report(over(python_files("src", "bench", "scripts", "examples"), lambda path, text: docstring_problems(text)))
    assert docstring_problems("import os")
    assert not docstring_problems("")


CATCH_ALL_ALLOWED = (
    "server/",
    "coordination/sqlite",
    "services/groups/shard",
    "services/groups/writer",
    "services/groups/quick_commit",
    "services/transactions/markers",
    "services/transactions/shard",
    "handlers/transactional_produce",
    "handlers/later_produce",
    "replication/waiters",
    "replication/sync_rounds",
    "services/fetching/parked",
    "services/delayed_produce",
    "services/reply",
    "testing/sim/world",
    "testing/drills/everyday_clients",
    "spark/pipelines/compiling/row_calls",
    "spark/archive/slices",
)
"""The connection loop; the store's thread, which hands what it caught to whoever waits for it; the shells around
groups and transactions, where a fault ends with an error for one request, group or partition; callbacks, where a
fault ends one waiter or, after a sync, the broker; simulated threads; clients of a drill: every error counts;
a user's function of rows, whose errors are dead letters; a user's filter of a replay, whose errors it reports."""


def test_nothing_catches_everything() -> None:
    def rule(path: Path, text: str) -> list[str]:
        inside = path.relative_to(PACKAGE).as_posix()
        return [] if inside.startswith(CATCH_ALL_ALLOWED) else failure_problems(text)

    report(over(python_files("src/headrace"), rule))
    assert failure_problems("try:\n    f()\nexcept Exception:\n    pass")
    assert failure_problems("try:\n    f()\nexcept:\n    pass")
    assert not failure_problems("try:\n    f()\nexcept BaseException:\n    undo()\n    raise")


TASKS_ALLOWED = ("env/background", "server/", "spark/", "connect/", "cli/", "client/", "testing/")
"""Everything else starts its work by `Background`, which tells when it ends. In the server it is one request's."""
TASK_GROUPS_ALLOWED = ("services/maintenance", "services/cleaner")
"""Groups inside background work: what fails in them fails the whole."""


def test_background_work_is_started_in_one_place() -> None:
    def rule(path: Path, text: str) -> list[str]:
        inside = path.relative_to(PACKAGE).as_posix()
        return [] if inside.startswith(TASKS_ALLOWED + TASK_GROUPS_ALLOWED) else task_problems(text)

    report(over(python_files("src/headrace"), rule))
    assert task_problems("asyncio.get_running_loop().create_task(work())")
    assert task_problems("asyncio.create_task(work())")
    assert not task_problems("self._env.background.start('Work', work())")


def task_problems(text: str) -> list[str]:
    return [
        f"line {node.lineno}: starts a task of its own; use env.background"
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Attribute) and node.attr == "create_task"
    ]


NAMES_OF_THEIR_OWN = ("cli/", "spark/", "connect/", "testing/", "wire/messages/")
"""Programs around the broker, and Kafka's messages, which name their parts as Kafka does."""
ONE_EVERYWHERE = {"Outcome", "Listener", "Connection"}
"""Also in these programs: they say too little to stand for two things."""


def test_one_name_stands_for_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for path in python_files("src/headrace"):
        inside = path.relative_to(PACKAGE).as_posix()
        for name in type_names(path.read_text(encoding="utf-8")):
            if name in ONE_EVERYWHERE or not inside.startswith(NAMES_OF_THEIR_OWN):
                found.setdefault(name, []).append(inside)
    report({name: [f"defined in {' and '.join(paths)}"] for name, paths in found.items() if len(paths) > 1})
    assert list(type_names("class Ab: ...\nBc = int | str\nDe: TypeAlias = int\nF = TypeVar('F')\nGH = 1")) == [
        "Ab",
        "Bc",
        "De",
    ]


def test_words() -> None:
    report(over(text_files(), lambda path, text: word_problems(text)))
    for sample in (
        "# TO" + "DO: later",
        "path = '/ro" + "ot/data'",
        "see /ho" + "me/me/x",
        "https://py" + "pi.example/simple",
        "pip --index-" + "url x",
    ):
        assert word_problems(sample), sample


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_api_one_file_one_registration() -> None:
    import headrace.handlers
    from headrace.handlers.registry import APIS

    problems: dict[str, list[str]] = {}
    for entry in pkgutil.iter_modules(headrace.handlers.__path__):
        module = importlib.import_module(f"headrace.handlers.{entry.name}")
        registered = [
            (api.key, api.name, api.versions)
            for api in APIS.values()
            if (api.cold or api.hot).__module__ == module.__name__
        ]
        # A file that registers nothing serves the others.
        problems[entry.name] = handler_problems(module.__doc__, registered) if registered else []
    report(problems)
    assert APIS, "no API is registered"
    assert handler_problems("Heartbeat (12), v0-4. Keeps a member alive.", [])
    assert handler_problems("Heartbeat.", [(12, "Heartbeat", range(5))])
    assert handler_problems("Heartbeat (12), v0-3. Old.", [(12, "Heartbeat", range(5))])
    assert not handler_problems("Heartbeat (12), v0-4. Keeps a member alive.", [(12, "Heartbeat", range(5))])


def test_generated_pages_are_current() -> None:
    pages: dict[str, str] = load(ROOT / "scripts" / "gen_docs.py").pages()
    assert pages
    for name, text in pages.items():
        path = ROOT / "docs" / name
        assert path.exists(), f"docs/{name} is missing: make docs"
        assert path.read_text(encoding="utf-8") == text, f"docs/{name} is stale: make docs"


def refused_phrases() -> list[str]:
    """The left column of the table in docs/voice.md."""
    return re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "voice.md").read_text(encoding="utf-8"), re.M)


def words_of(source: str) -> Iterator[tuple[int, str]]:
    """String constants, docstrings and comments of a module, with their lines: all of it is read by somebody."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for number, line in enumerate(source.splitlines(), 1):
        if (comment := line.find("# ")) >= 0:
            yield number, line[comment:]


def test_what_people_read_is_plain_english() -> None:
    phrases = refused_phrases()
    assert len(phrases) >= 10
    refused = re.compile("|".join(rf"\b{re.escape(phrase)}\b" for phrase in phrases), re.I)
    found = [
        f"{name_of(path)}:{number}: {text!r}"
        for path in python_files("src")
        if "testing" not in path.parts
        for number, text in words_of(path.read_text(encoding="utf-8"))
        if refused.search(text)
    ]
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if page.name != "voice.md":
            lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
            found += [f"{name_of(page)}:{number}: {line}" for number, line in lines if refused.search(line)]
    assert not found, "docs/voice.md has plainer words:\n" + "\n".join(found)
    assert refused.search("Options that nobody knows"), "the rule can fail"


def fragments(source: str) -> list[str]:
    """Docstrings that lack their noun, also those that follow an assignment."""
    return [
        f"line {node.lineno}: {text!r} lacks its noun, see docs/voice.md"
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Expr) and FRAGMENT.match(text := str(getattr(node.value, "value", "")))
    ]


def test_docstrings_name_what_they_describe() -> None:
    report(over(python_files("src", "bench", "scripts"), lambda path, text: fragments(text)))
    for sample in ('"""Of one listener."""', 'A = 4\n"""So many there."""', 'def f():\n    """Those that run."""'):
        assert fragments(sample), sample
    assert not fragments('"""The settings of one listener."""\nA = "Of age."')


def unread_settings(names: set[str], sources: list[str]) -> set[str]:
    return {name for name in names if not any(f'"{name}"' in source for source in sources)}


def test_every_broker_setting_has_an_effect() -> None:
    """A setting that nothing reads belongs among the known but unused, where it warns."""
    from headrace.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS

    synonyms = {synonym.name for setting in TOPIC_SETTINGS.values() for synonym in setting.synonyms}
    tables = (
        "broker_settings.py",
        "cleaner_settings.py",
        "coordination_settings.py",
        "topic_settings.py",
        "known_unused.py",
    )
    sources = [path.read_text() for path in python_files("src/headrace") if path.name not in tables]
    assert not unread_settings(set(BROKER_SETTINGS) - synonyms, sources)
    assert unread_settings({"a.b"}, ['config.integer("a.c")']) == {"a.b"}


def unread_fields(names: set[str], sources: list[str]) -> set[str]:
    return {
        name for name in names if not any(re.search(rf"\.{name.replace('.', '_')}\b", text) for text in sources)
    }


def test_topic_settings_without_effect_are_named_as_such() -> None:
    """Most topic settings are fields of the log's; one that no code reads must not look as if it worked."""
    from headrace.config.settings import NOT_ACTED_ON
    from headrace.storage.log_config import LogConfig

    fields = {name.replace("_", ".") for name in LogConfig.__dataclass_fields__}
    sources = [path.read_text() for path in python_files("src/headrace") if layer_of(path) != "config"]
    unread = unread_settings(unread_fields(fields, sources), sources)  # neither as a field nor by its name
    assert unread == NOT_ACTED_ON & fields
    assert unread_settings(set(NOT_ACTED_ON - fields), sources) == NOT_ACTED_ON - fields, "these have an effect"
    assert unread_fields({"flush.ms", "segment.ms"}, ["if age > config.segment_ms:"]) == {"flush.ms"}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", ".ci/run"])
def test_the_project_has_its_papers(name: str) -> None:
    assert (ROOT / name).read_text().strip()
