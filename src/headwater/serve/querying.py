"""A query over a running stream: the next records of a step are looked at, and a process of its own asks them the query.

So a query that is wrong, large or slow costs the flow no more than the look.
"""

from __future__ import annotations

import re
import threading

import msgspec

from headwater.errors import RunError, listed, suggestion
from headwater.serve.answering import Answering
from headwater.serve.child import asked
from headwater.serve.messages import Assignment, Order, Trial
from headwater.serve.settings import Settings

#: what a stream is called in a query whose step has a name that is no word of the language
STREAM = "stream"
_ANSWER_S = 60.0
_at_a_time = threading.Semaphore(2)


def stream_name(step: str) -> str:
    """Return what the records of a step are called in a query.

    >>> stream_name("sound"), stream_name("ten seconds")
    ('sound', 'stream')
    """
    return step if re.fullmatch(r"[A-Za-z_]\w*", step) else STREAM


def queried(flows: Answering, name: str, step: str, text: str, limit: int) -> bytes:
    """Return what a query finds in the next records that a step gives out, as JSON; or where its text is wrong."""
    steps = {each["name"]: each for each in msgspec.json.decode(flows.graph_of(name))["steps"]}
    if step not in steps:
        raise RunError(
            f"flow {name!r} has no step {step!r}; steps are {listed(list(steps))}{suggestion(step, list(steps))}"
        )
    outputs = steps[step]["outputs"]
    if not outputs:
        raise RunError(f"step {step!r} is a sink, which gives out nothing to ask about; ask the step before it")
    seen = msgspec.json.decode(flows.show(name, Order("records", step, limit)))
    trial = Trial(text, stream_name(step), next(iter(outputs.values())), seen["out"])
    with _at_a_time:
        answer = asked(name, Assignment("query", "", "", Settings(), trial=trial), _ANSWER_S)
    if answer.why is not None:
        raise RunError(answer.why)
    return bytes(answer.found)
