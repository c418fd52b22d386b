"""What can be told of sources and sinks before a run touches anything."""

from __future__ import annotations

from headwater.errors import HeadwaterError, RunError
from headwater.flow.endpoints import check_place, check_source
from headwater.flow.flow import Flow
from headwater.flow.places import place_of
from headwater.flow.steps import Read, Write
from headwater.operators.fault_isolation import error_text


def check_endpoints(flow: Flow, *, in_parts: bool, forks: bool = False) -> None:
    """Raise what a source or sink has to say: to open a file to be written empties it, also if the next one cannot be.

    Who is about to fork asks sources of files alone: clients of others would leave threads behind.
    """
    for step in flow.steps.values():
        try:
            if isinstance(step.kind, Read) and not (forks and place_of(step.kind.source, writing=False) is None):
                check_source(step.kind.source)
            elif isinstance(step.kind, Write):
                check_place(step.kind.sink, in_parts=in_parts)
        except HeadwaterError:
            raise
        except Exception as error:  # of a source or sink of somebody's own
            what = "source" if step.is_source else "sink"
            raise RunError(f"{what} {step.name!r} cannot be opened: {error_text(error)}", step=step.name) from error
