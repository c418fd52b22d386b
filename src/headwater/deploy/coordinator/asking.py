"""Asks a coordinator that runs on this machine, found by its state folder."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Literal

from headwater.deploy.certificates import Identity
from headwater.deploy.control.messages import Answer, Ask
from headwater.deploy.control.wire import Wire
from headwater.deploy.coordinator.state import Phase, StateFolder
from headwater.deploy.token import COORDINATOR
from headwater.errors import RunError

_ANSWER_S = 10.0


class NobodyError(RunError):
    """No coordinator runs with a state folder."""


def ask(folder: StateFolder, what: Ask | Literal["status", "stop", "forget"]) -> dict[str, Any]:
    """Return what a coordinator says; RunError with its reason where it says no, NobodyError where there is none."""
    address = folder.address
    if address is None:
        raise NobodyError(f"no coordinator has run with the state folder {folder.path}; headwater deploy starts one")
    return asyncio.run(_ask(folder, address, what if isinstance(what, Ask) else Ask(what)))


def at_rest(folder: StateFolder) -> dict[str, Any]:
    """Return what the state folder says where no coordinator runs, in the form of its answer, and why that is so."""
    deployed = folder.read().deployed
    if deployed is None:
        why = f"no coordinator runs with the state folder {folder.path}"
        return {"flow": None, "sites": [], "links": [], "net": None, "why": why}
    over = deployed.phase in ("ended", "stopped")
    sites = [
        {"name": name, "here": False, "steps": steps, "state": deployed.phase if over else "unknown", "why": ""}
        for name, steps in deployed.steps_at().items()
    ]
    flow = {"name": deployed.name, "id": deployed.id, "phase": deployed.phase, "moving": deployed.moving is not None}
    net = None if deployed.chart is None else deployed.chart.describe()
    return {"flow": flow, "sites": sites, "links": [], "net": net, "why": _REST[deployed.phase].format(folder.path)}


#: what is so, and what could be done, by the phase of the flow
_REST: dict[Phase, str] = {
    "installing": "no coordinator runs, and not all sites have their parts; 'headwater deploy --state {0}' goes on",
    "running": "no coordinator runs; the sites go on as they are, and 'headwater deploy --state {0}' looks after them again",
    "stopping": "no coordinator runs, and not all sites have stopped; 'headwater stop --state {0}' tells them",
    "stopped": "each part has a checkpoint, from which 'headwater deploy --state {0}' goes on",
    "ended": "it has come to its end at all its sites; 'headwater stop --forget --state {0}' makes room to run it anew",
}


async def _ask(folder: StateFolder, address: tuple[str, int], question: Ask) -> dict[str, Any]:
    host, port = address
    try:
        async with asyncio.timeout(_ANSWER_S):
            context = Identity.of(folder.certificates, COORDINATOR).client()
            wire = Wire(*await asyncio.open_connection(host, port, ssl=context, server_hostname=COORDINATOR))
            wire.say(question)
            answer = await wire.hear()
            await wire.close()
    except (OSError, TimeoutError, ssl.SSLError) as error:
        why = str(error) or type(error).__name__
        raise NobodyError(
            f"no coordinator answers at {host}:{port} for the state folder {folder.path} ({why}); "
            f"'headwater deploy --state {folder.path}' goes on with what is deployed"
        ) from None
    if not isinstance(answer, Answer):
        raise RunError(
            f"the coordinator at {host}:{port} hung up without an answer: either it has ended, and then 'headwater deploy "
            f"--state {folder.path}' goes on, also with a move that had begun, or it is another one's"
        )
    if answer.why is not None:
        raise RunError(answer.why)
    return answer.document
