"""`--web`: the dashboard beside what a command runs. What runs does not end where the dashboard cannot be had."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.address import address_of
from headwater.cli.screen import err
from headwater.errors import RunError
from headwater.serve.http import Server
from headwater.serve.watched_run import WatchedRun
from headwater.web.process import Dashboard, check_installed
from headwater.web.settings import FLOW_PAGES, Settings

if TYPE_CHECKING:
    from headwater.deploy.api.routes import Answers

log = logging.getLogger("headwater.serve")

LISTEN = "127.0.0.1:8471"


def check_web(listen: str) -> None:
    """Refuse, before anything runs, what could not be shown."""
    check_installed()
    address_of("--web-listen", listen, LISTEN)


@contextmanager
def dashboard_of(
    api: str,
    token: str,
    listen: str,
    tell: Callable[[str], None],
    names: tuple[str, ...] = (),
    pages: tuple[str, ...] = FLOW_PAGES,
) -> Iterator[None]:
    """Have a dashboard of an API while the context lasts; `tell` is called with its address once it is there."""
    host, port = address_of("--web-listen", listen, LISTEN)
    dashboard = Dashboard(Settings(api, token, host, port, list(names), pages))

    def start() -> None:
        try:
            tell(dashboard.start())
        except RunError as error:
            if not dashboard.closed:
                log.error("%s; what runs goes on without it", error)

    starter = threading.Thread(target=start, name="dashboard start", daemon=True)
    starter.start()
    try:
        yield
    finally:
        dashboard.close()
        starter.join()


@contextmanager
def dashboard_of_run(run: Any, listen: str, checkpoint: Path | None, dead: Path | None) -> Iterator[None]:
    """Have a run of this process shown by a dashboard while the context lasts."""
    token = secrets.token_urlsafe(32)
    service = WatchedRun(run, checkpoint, dead)

    def tell(url: str) -> None:
        err.print(f"dashboard: {url}/login#{token}", soft_wrap=True, highlight=False)

    with Server(service, "127.0.0.1", 0, token) as server:
        threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
        service.start()
        try:
            with dashboard_of(server.url, token, listen, tell):
                yield
        finally:
            service.close()
            server.shutdown()


@contextmanager
def dashboard_of_answers(answers: Answers, token: str, listen: str) -> Iterator[None]:
    """Have sites and plans answered for over HTTP, and shown by a dashboard, while the context lasts."""

    def tell(url: str) -> None:
        err.print(f"dashboard: {url}/login#{token}", soft_wrap=True, highlight=False)
        err.print(f"its API: {server.url}/api/v1", soft_wrap=True, highlight=False)

    with Server(answers, "127.0.0.1", 0, token, routes=answers.routes) as server:
        threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
        try:
            with dashboard_of(server.url, token, listen, tell, pages=answers.pages):
                yield
        finally:
            server.shutdown()
