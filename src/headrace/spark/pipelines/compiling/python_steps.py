"""Python steps: a function from the user's file, called with the DataFrames that it asked for.

Rules:
- The file is imported by its path, and may import its neighbours. What it defines travels to Spark's workers by
  value: on a cluster they do not have the file.
- What the user's code raises is reported with the line of their file that raised it.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from headrace.spark.compat import with_call_sites
from headrace.spark.pipelines.definition import PipelineError, Problem, Step
from headrace.spark.pipelines.explaining.spark_words import SPARK_ERRORS, Told, told
from headrace.spark.pipelines.explaining.sql_errors import raised_in
from headrace.spark.pipelines.nearest import suggestion

_homes: dict[str, Path] = {}
"""The modules of users that were imported, and from which folder."""


def run_python_step(step: Step, path: str, frames: Sequence[DataFrame]) -> DataFrame:
    """The DataFrame that the function returns. `path` is the pipeline's file, for messages."""
    assert step.python_file is not None
    assert step.function is not None
    function = load_function(step, path)
    with UsersCode(step, path), with_call_sites():
        result = function(*frames)
    if not isinstance(result, DataFrame):
        raise _failed(
            step, path, f"{step.text} returned {_kind(result)}, not a DataFrame", "Return the DataFrame."
        )
    return result


def load_function(step: Step, path: str) -> Callable[..., Any]:
    assert step.python_file is not None
    assert step.function is not None
    module = _module(step, path)
    function = getattr(module, step.function, None)
    if not callable(function):
        known = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        advice = suggestion(step.function, known, f"It has {', '.join(known)}." if known else "It has none.")
        raise _failed(step, path, f"there is no function {step.function} in {step.python_file}", advice)
    _check_parameters(step, path, function)
    found: Callable[..., Any] = function
    return found


def _check_parameters(step: Step, path: str, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(*step.inputs)
    except TypeError:
        takes = ", ".join(inspect.signature(function).parameters)
        raise _failed(
            step,
            path,
            f"{step.function}({takes}) cannot be called with what from: names: {', '.join(step.inputs)}",
            "It gets one row at a time, as a dict."
            if step.kind == "python_rows"
            else "It gets one DataFrame for each name in from, in that order.",
        ) from None


def _module(step: Step, path: str) -> ModuleType:
    file = Path(str(step.python_file))
    name = f"headrace_step_{file.stem}_{abs(hash(str(file)))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise _failed(step, path, f"there is no file {file}", "Its path is relative to the pipeline's file.")
    module = importlib.util.module_from_spec(spec)
    _forget_neighbours_of_others(file.parent)
    known = set(sys.modules)
    sys.modules[name] = module
    try:
        with _neighbours(file.parent), UsersCode(step, path):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _send_by_value(file.parent, {name, *sys.modules.keys() - known})
    return module


@contextmanager
def _neighbours(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _forget_neighbours_of_others(folder: Path) -> None:
    """Two pipelines may each have a `helpers.py`: one must not get the modules of the other."""
    for name, home in list(_homes.items()):
        if home != folder and (folder / f"{name}.py").exists():
            sys.modules.pop(name, None)
            del _homes[name]


def _send_by_value(folder: Path, names: set[str]) -> None:
    for name in names:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(folder) and "site-packages" not in Path(file).parts:
            register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
            register(sys.modules[name])
            _homes[name] = folder


class UsersCode:
    """A block that runs the user's code: whatever it raises becomes a `PipelineError`."""

    def __init__(self, step: Step, path: str) -> None:
        self._step = step
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            raise _failed(self._step, self._path, *self._told(error, trace)) from error

    def _told(self, error: Exception, trace: TracebackType | None) -> Told:
        file = str(self._step.python_file)
        if isinstance(error, SyntaxError) and error.filename == file:
            return Told(f"{file}:{error.lineno}: {error.msg}")
        lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == file]
        where = f"{file}:{lines[-1]}" if lines else file
        if not isinstance(error, SPARK_ERRORS):
            return Told(f"{where}: {type(error).__name__}: {error}")
        raised = raised_in(file, str(error))  # in a worker, when the step itself looked at rows
        if raised is not None:
            return Told(raised)
        what, advice = told(error)
        return Told(f"{where}: {what}", advice)


def _failed(step: Step, path: str, what: str, advice: str | None = None) -> PipelineError:
    line, column = step.at(step.kind)
    return PipelineError([Problem(path, line, column, f"step {step.name}: {what}", advice)])


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
