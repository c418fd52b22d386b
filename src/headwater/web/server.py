"""The process of the dashboard: pages by NiceGUI behind the guard, on one socket, until its standard input ends."""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import BinaryIO
from urllib.parse import quote

import msgspec
import uvicorn
from fastapi import FastAPI
from nicegui import ui
from starlette.requests import Request
from starlette.responses import RedirectResponse

from headwater.errors import RunError
from headwater.web.api import Api, ApiError
from headwater.web.frame import OF_FLOWS, Frame, empty
from headwater.web.guard import Guard
from headwater.web.pages import dead, flow, plan, promises, query, sites, time
from headwater.web.settings import Began, Settings

_ICON = (
    "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHZpZXdCb3g9IjAgMCAzMiAzMiI+PGcgZmlsbD0ibm"
    "9uZSIgc3Ryb2tlPSIjMGE2Yzk2IiBzdHJva2Utd2lkdGg9IjMiIHN0cm9rZS1saW5lY2FwPSJyb3VuZCI+PHBhdGggZD0iTTMgMTBjNC00IDgtNCAxMyAwczkgN"
    "CAxMyAwTTMgMTdjNC00IDgtNCAxMyAwczkgNCAxMyAwTTMgMjRjNC00IDgtNCAxMyAwczkgNCAxMyAwIi8+PC9nPjwvc3ZnPg=="
)


#: what adds each page
_ADDS = {
    "flow": flow.add,
    "time": time.add,
    "promises": promises.add,
    "dead": dead.add,
    "query": query.add,
    "sites": sites.add,
    "plan": plan.add,
}


def serve(settings: Settings, stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Serve the pages; say where on `stdout` once they are there, and end with `stdin`."""
    listener = _bind(settings.host, settings.port)
    logging.getLogger("nicegui").setLevel(logging.WARNING)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    api = Api(settings.api, settings.token, settings.pages)
    for name in settings.pages:
        _ADDS[name](api)
    _add_front(api)
    ui.run_with(
        app, title="Headwater", favicon=_ICON, tailwind=False, show_welcome_message=False, reconnect_timeout=10.0
    )
    guard = Guard(app, settings.token, settings.names)
    server = uvicorn.Server(uvicorn.Config(guard, log_level="warning", access_log=False, timeout_graceful_shutdown=1))

    def watch() -> None:
        stdin.read()
        server.should_exit = True

    threading.Thread(target=watch, name="watch", daemon=True).start()
    stdout.write(msgspec.json.encode(Began(_url(listener))) + b"\n")
    stdout.flush()
    os.dup2(2, 1)  # nobody reads there any more
    server.run(sockets=[listener])


def _add_front(api: Api) -> None:
    @ui.page("/")
    async def front(request: Request) -> RedirectResponse | None:
        """Go to a page of the first flow; where there is none, say how there would be one."""
        if api.pages[0] not in OF_FLOWS:
            return RedirectResponse(f"/{api.pages[0]}", 303)
        page = request.query_params.get("page", "flow")
        page = page if page in OF_FLOWS else "flow"
        try:
            flows = await api.get("/flows", 0.9)
        except ApiError:
            flows = []
        if flows:
            return RedirectResponse(f"/{page}/{quote(flows[0]['name'], safe='')}", 303)
        frame = Frame(api, request, page)

        async def look() -> None:
            if await api.get("/flows", 0.9):
                ui.navigate.reload()

        with frame.body:
            empty(
                "No flow yet",
                "A flow is a Python file in the folder that is served. Put this one there, and it appears here:",
                "from headwater import Flow, io\n\n"
                'flow = Flow("beat")\n'
                'beats = flow.read("beats", io.Generate(lambda n: {"n": n}, {"n": int}, rate=100))\n'
                'beats.write("out", io.JsonLines("beats.jsonl"))',
            )
        await frame.every(2.0, look)
        return None


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(64)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise RunError(
            f"the dashboard cannot listen on {host}:{port}: {why}; is the port taken? Choose another with --web-listen"
        ) from None
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
