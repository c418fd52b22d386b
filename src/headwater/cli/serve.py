"""`headwater serve DIR`."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from headwater.cli.address import address_of
from headwater.cli.parameters import JSON
from headwater.cli.screen import console, print_json, progress
from headwater.cli.site_web import check_dashboard
from headwater.cli.web import LISTEN as WEB_LISTEN
from headwater.cli.web import dashboard_of
from headwater.errors import HeadwaterError, RunError
from headwater.flow.duration import microseconds_of
from headwater.rate.process import began
from headwater.serve.child import ask
from headwater.serve.claims import twice
from headwater.serve.folder import FlowFile, Folder
from headwater.serve.home import Home, Note, default_token, flow_home, token_of
from headwater.serve.http import Server
from headwater.serve.messages import Answer, Assignment
from headwater.serve.notify import Notifier
from headwater.serve.service import Service
from headwater.serve.settings import read_settings, settings_beside
from headwater.serve.supervision import CHECK_S

log = logging.getLogger("headwater.serve")

LISTEN = "127.0.0.1:8470"


def serve(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="a folder of flows: *.py, each with settings in *.toml")
    ],
    state: Annotated[
        Path | None,
        typer.Option(
            help="where checkpoints, dead letters and the token are kept [default: DIR/.headwater, or systemd's]"
        ),
    ] = None,
    listen: Annotated[str, typer.Option(help="address and port of the API; port 0 takes any that is free")] = LISTEN,
    token_file: Annotated[
        Path | None, typer.Option(help="a file with the token of the API [default: one is made in the state folder]")
    ] = None,
    host_name: Annotated[
        list[str] | None, typer.Option(help="a name that clients know this machine by; may be given several times")
    ] = None,
    stop_within: Annotated[str, typer.Option(help="how long a flow may take to stop")] = "30s",
    web: Annotated[bool, typer.Option("--web", help="open a dashboard too: pages for a browser")] = False,
    web_listen: Annotated[
        str | None, typer.Option(help=f"with --web: address and port of the dashboard [default: {WEB_LISTEN}]")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="only look at all flows: whether each could run, and go on; start none")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Run every flow of a folder, look after them, and answer for them over HTTP.

    Each flow has a process and a checkpoint of its own. What is new, changed or gone in the folder is taken over without
    losing state; what dies is started again, later each time. Ctrl-C or SIGTERM stops all with a checkpoint, a second one
    at once.
    """
    flows = Folder(folder)
    state_folder = _state(flows, state)
    if check:
        _check(flows, state_folder, as_json=as_json)
        return
    if not log.isEnabledFor(logging.INFO) and logging.getLogger().level == logging.WARNING:
        log.setLevel(logging.INFO)  # unless warnings are not wanted either
    host, port = address_of("--listen", listen, f"{LISTEN} or [::1]:8470")
    web_at = check_dashboard(web, web_listen, WEB_LISTEN)
    home = Home(state_folder)
    try:
        token_path = default_token(state_folder) if token_file is None else token_file.absolute()
        token = token_of(token_path, must_exist=token_file is not None)

        def tell(url: str) -> None:
            log.info("the dashboard is at %s; log in with the token in %s", url, token_path)

        notifier = Notifier()
        service = Service(flows, home, notifier, stop_within_s=microseconds_of("--stop-within", stop_within) / 1e6)
        with Server(service, host, port, token, host_name or ()) as server:
            threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
            pid = os.getpid()
            home.announce(Note(server.url, pid, began(pid) or 0, str(flows.path), str(home.path), str(token_path)))
            log.info("the flows of %s are served at %s; the token is in %s", flows.path, server.url, token_path)
            with dashboard_of(server.url, token, web_at, tell, tuple(host_name or ())) if web else nullcontext():
                run_until_stopped(service)
            server.shutdown()
        statuses = service.statuses()
    finally:
        home.leave()
    if as_json:
        print_json(msgspec.json.decode(msgspec.json.encode(statuses)))
    if service.unstopped:
        raise typer.Exit(1)


def run_until_stopped(service: Service, over: Callable[[], bool] = lambda: False) -> None:
    """Serve until signals have ended it, or it is `over`."""
    times = 0

    def on_signal(signum: int, frame: Any) -> None:
        nonlocal times
        times += 1
        if times > 2:
            service.kill_all()
            os._exit(128 + signum)
        # in a thread: what was interrupted may hold the very lock that is needed
        threading.Thread(target=service.shut, kwargs={"now": times == 2}, daemon=True).start()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        service.start()
        while not service.ended.wait(0.2):
            if over():
                service.shut()
            # a signal that the system gives to another thread is heard when this one wakes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _state(flows: Folder, folder: Path | None) -> Path:
    systemd = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return folder or (Path(systemd) if systemd else flows.path / ".headwater")


def _check(flows: Folder, state_folder: Path, *, as_json: bool) -> None:
    files = flows.look(first=True)
    if files is None:
        raise RunError(f"cannot look into {flows.path}")
    with progress("looking at all flows"), ThreadPoolExecutor(2) as pool:
        checks = list(pool.map(lambda each: _check_flow(each, state_folder), files.values()))
    reasons, owners = list[str | None](), dict[str, str]()
    for name, answer in zip(files, checks, strict=True):
        conflict = next((file for file in answer.writes if file in owners), None)
        reasons.append(answer.why if conflict is None else twice(conflict, owners[conflict]))
        if reasons[-1] is None:
            owners |= dict.fromkeys(answer.writes, name)
    answers = [
        {"name": each.name, "file": str(each.path), "runs": why is None, "why": why}
        for each, why in zip(files.values(), reasons, strict=True)
    ]
    if as_json:
        print_json(answers)
    else:
        table = Table("flow", "could run", header_style="bold")
        for name, why in zip(files, reasons, strict=True):
            table.add_row(name, "yes" if why is None else f"no: {why}")
        console.print(table)
    if any(why is not None for why in reasons):
        raise typer.Exit(1)


def _check_flow(file: FlowFile, state_folder: Path) -> Answer:
    """Check a flow without starting it: why it could not run, and which files it would write."""
    home = flow_home(state_folder, file.name)
    try:
        settings = read_settings(settings_beside(file.path))
        return ask(file.name, Assignment("check", str(file.path), str(home.path), settings), CHECK_S)
    except HeadwaterError as error:
        return Answer(str(error))
