"""The calls of numba that headrace.spark.arrow makes: functions compiled once, with the types they take."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

from numba.types import Integer, Signature, Type

__version__: str

int32: Integer
int64: Integer
uint8: Integer
uint64: Integer
void: Type

_P = ParamSpec("_P")
_R = TypeVar("_R")

@overload
def njit(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...
@overload
def njit(
    signature: Signature | str | None = None,
    /,
    *,
    cache: bool = False,
    nogil: bool = False,
    inline: str = "never",
    boundscheck: bool | None = None,
    error_model: str = "python",
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
