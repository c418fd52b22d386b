"""Asks a coordinator that runs on this machine, found by its state folder."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Literal

from headwater.deploy.certificates import Identity
from headwater.deploy.control.messages import Answer, Ask
from headwater.deploy.control.wire import Wire
from headwater.deploy.coordinator.state import StateFolder
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
        raise RunError(f"the coordinator at {host}:{port} did not answer; was another one started there?")
    if answer.why is not None:
        raise RunError(answer.why)
    return answer.document
