"""Supervisors of promises that a test has started, by what it ran: who they are, and their end."""

import os
import signal

from headwater.rate.client import Client, board, connected
from headwater.rate.messages import End
from headwater.rate.peer import peer


def supervisor_pid(home) -> int:
    """Return the process that answers in a runtime folder."""
    with connected(home) as line:
        return peer(line)[0]


def end_supervisor(home):
    """End the supervisor of a runtime folder, if there is one; else it would stay for a while."""
    found = board(home)
    if found is not None:
        client = Client(home)
        for each in found.lanes:
            client.say(End(each.id))
        client.close()
        os.kill(supervisor_pid(home), signal.SIGTERM)
