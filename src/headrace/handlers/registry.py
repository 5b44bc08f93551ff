"""One registration per API, from which dispatch, ApiVersions, metrics, authorisation and the docs derive.

A cold handler is a coroutine from a decoded request to a response, or a plain function that gives the response
where it has it at once; where it must wait, it gives a coroutine, or, without any task, a `Pending`. The hot ones
(Produce, Fetch) are plain functions over the raw frame (architecture D13), registered with `hot_api`. A cold API
whose usual requests come all the time can have a hot handler for those beside the cold one for all (`quick`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.handlers.context import Context, Right
from headrace.wire.schema import Request, Response

Rq = TypeVar("Rq", bound=Request)
Rs = TypeVar("Rs", bound=Response)
ColdHandler = Callable[[Context, Any], Awaitable[Response] | Response]
Handler = Callable[[Context, Rq], Awaitable[Rs] | Rs]
HotHandler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Api:
    key: int
    name: str
    versions: range
    """The versions that the handler accepts."""
    advertised_from: int
    """The first version in ApiVersions; below `versions` only where clients infer features from it."""
    flexible_since: int
    request: type[Request] | None
    response: type[Response] | None
    authorize: Right | None
    """The right that the gate requires; None where everybody may."""
    cold: ColdHandler | None
    hot: HotHandler | None
    summary: str
    """The first line of the handler's module: what it is, for the generated table."""
    quick: HotHandler | None = None
    """A hot handler for the usual requests of a cold API; it returns `NOT_QUICK` for all others."""


APIS: dict[int, Api] = {}


def api(
    request: type[Rq],
    response: type[Rs],
    *,
    versions: range,
    quick: HotHandler | None = None,
    authorize: Right | None,
) -> Callable[[Handler[Rq, Rs]], Handler[Rq, Rs]]:
    """Register a cold handler of an API."""

    def register(handler: Handler[Rq, Rs]) -> Handler[Rq, Rs]:
        assert set(versions) <= set(request.versions), f"{request.__name__} lacks some of {versions}"
        name = request.__name__.removesuffix("Request")
        _add(
            Api(
                request.api_key,
                name,
                versions,
                versions.start,
                request.flexible_since,
                request,
                response,
                authorize,
                handler,
                None,
                _doc(handler),
                quick,
            )
        )
        return handler

    return register


def hot_api(
    *,
    key: int,
    name: str,
    versions: range,
    flexible_since: int,
    authorize: Right | None,
    advertised_from: int | None = None,
) -> Callable[[HotHandler], HotHandler]:
    """Register a plain function over the raw frame as the handler of an API."""

    def register(handler: HotHandler) -> HotHandler:
        first = versions.start if advertised_from is None else advertised_from
        _add(Api(key, name, versions, first, flexible_since, None, None, authorize, None, handler, _doc(handler)))
        return handler

    return register


def _add(entry: Api) -> None:
    assert entry.key not in APIS, f"API {entry.key} is registered twice"
    APIS[entry.key] = entry


def _doc(handler: Callable[..., Any]) -> str:
    return (handler.__doc__ or "").strip().splitlines()[0] if handler.__doc__ else ""
