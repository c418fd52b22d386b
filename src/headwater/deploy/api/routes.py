"""What can be asked of a coordinator and of plans over HTTP: tables as that of `serve.routes`, by the same rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from headwater.deploy.api.plans import Plans
from headwater.deploy.api.requests import (
    DrainRequest,
    FrontRequest,
    MoveRequest,
    OpenRequest,
    PlanRequest,
    RehearsalRequest,
    TryRequest,
)
from headwater.deploy.api.schemas import SCHEMAS
from headwater.deploy.api.sites import Sites
from headwater.serve.openapi import openapi_document
from headwater.serve.routes import RefusalError, Request, Response, Route, document

_API = "/api/v1"
_LONGEST_S = 600.0  #: that can be rehearsed
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers:
    """What there is to ask."""

    sites: Sites
    plans: Plans | None = None
    front: str = "sites"  #: the page that opens first

    @property
    def routes(self) -> tuple[Route, ...]:
        """What can be asked for."""
        return (_OPENAPI, *SITES, *(PLANS if self.plans is not None else ()))

    @property
    def pages(self) -> tuple[str, ...]:
        """The pages of the dashboard that show it."""
        pages = ("sites",) if self.plans is None else ("sites", "plan")
        return tuple(sorted(pages, key=lambda page: page != self.front))


def read_body(request: Request, kind: type[T]) -> T:
    """Return what is sent, as a kind of request; RefusalError says what it should be."""
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fields = ", ".join(field.name for field in msgspec.structs.fields(kind))  # type: ignore[arg-type]
        raise RefusalError(400, f"what is wished is told as {{{fields}}} in JSON: {error}") from None


def _openapi(request: Request) -> Response:
    return document(openapi_document(request.service.routes, "Sites of a flow, and plans", SCHEMAS))


def _status(request: Request) -> Response:
    return document(request.service.sites.status())


def _move(request: Request) -> Response:
    body = read_body(request, MoveRequest)
    return document(request.service.sites.move(body.steps, body.site), 202)


def _drain(request: Request) -> Response:
    body = read_body(request, DrainRequest)
    return document(request.service.sites.drain(body.site, body.to), 202)


def _open(request: Request) -> Response:
    return document(request.service.sites.open(read_body(request, OpenRequest).site), 202)


def _choices(request: Request) -> Response:
    return document(request.service.plans.choices())


def _search(request: Request) -> Response:
    body = read_body(request, PlanRequest)
    return document(request.service.plans.search(body.flow, body.net, body.objective))


def _front(request: Request) -> Response:
    body = read_body(request, FrontRequest)
    return document(request.service.plans.front(body.flow, body.net, body.one, body.other))


def _tried(request: Request) -> Response:
    body = read_body(request, TryRequest)
    return document(request.service.plans.tried(body.flow, body.net, body.objective, body.placement))


def _rehearsed(request: Request) -> Response:
    body = read_body(request, RehearsalRequest)
    if not 0 < body.seconds <= _LONGEST_S:
        raise RefusalError(400, f"seconds is a number above 0, and up to {_LONGEST_S:g}; got {body.seconds:g}")
    return document(request.service.plans.rehearsed(body.flow, body.net, body.placement, body.seconds))


def _deployed(request: Request) -> Response:
    body = read_body(request, TryRequest)
    return document(request.service.plans.deployed(body.flow, body.net, body.objective, body.placement), 202)


def _act(path: str, about: str, answer: Callable[[Request], Response], **more: Any) -> Route:
    return Route("POST", f"{_API}/{path}", about, answer, **more)


_OPENAPI = Route("GET", "/openapi.json", "This document", _openapi, public=True)
_BEGUN: dict[str, Any] = {"gives": "Sites", "success": 202}

SITES: tuple[Route, ...] = (
    Route("GET", f"{_API}/sites", "The flow that is deployed, all sites, links and moves", _status, gives="Sites"),
    _act("sites/move", "Begin to move steps to a site", _move, body="MoveRequest", **_BEGUN),
    _act("sites/drain", "Begin to move all that can leave a site", _drain, body="DrainRequest", **_BEGUN),
    _act("sites/open", "Let the policy use a site again that was drained", _open, body="OpenRequest", **_BEGUN),
)
PLANS: tuple[Route, ...] = (
    Route("GET", f"{_API}/plans", "Flows, nets and measures to plan with", _choices, gives="Choices"),
    _act(
        "plans/best",
        "The best placement of a flow on a net, and why each step is where it is",
        _search,
        body="PlanRequest",
        gives="Placement",
    ),
    _act(
        "plans/front",
        "Placements between the best in one measure and the best in another",
        _front,
        body="FrontRequest",
        gives="Front",
    ),
    _act(
        "plans/try",
        "What a placement by hand is worth, and what it would break",
        _tried,
        body="TryRequest",
        gives="Placement",
    ),
    _act(
        "plans/rehearse", "A placement played in virtual time", _rehearsed, body="RehearsalRequest", gives="Rehearsal"
    ),
    _act(
        "plans/deploy", "Have a placement run at its sites", _deployed, body="TryRequest", gives="Deployed", success=202
    ),
)
