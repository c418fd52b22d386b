"""How a step is closed: in a thread of its own, so that one that hangs can be left behind, and a full disk waited for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.data.jit import answering_at_once
from headwater.errors import NoRoomError, RunError, one_line
from headwater.operators.write import WriteOperator

if TYPE_CHECKING:
    from headwater.engine.run import EngineRun
    from headwater.operators.task import Task

log = logging.getLogger(__name__)

ROOM_S = 5.0  #: for which a run that was told to stop goes on to look for room on a full disk
_LOOK_S = 0.1  #: between two looks


def close_within_grace(run: EngineRun, task: Task, close: Callable[[], None]) -> RunError | None:
    """Close a source or step, and return what there is to say against it.

    Once the run was aborted, it is not waited for for ever. A sink that finds a disk full is closed again, until there is
    room or the run has been told to stop for a while.
    """
    broken: list[BaseException] = []
    thread = threading.Thread(target=_closing, args=(run, task, close, broken), name=f"close {task.name}", daemon=True)
    thread.start()
    aborted_s: float | None = None
    while thread.is_alive() and (aborted_s is None or time.monotonic() < aborted_s + run.grace_s):
        thread.join(0.1)
        if run.aborted and aborted_s is None:
            aborted_s = time.monotonic()
    if thread.is_alive():
        message = f"step {task.name!r} did not finish closing within {run.grace_s:g} s of being told to stop"
        log.error(message)
        return RunError(message, step=task.name)
    for error in broken:
        task.count_unwritten(getattr(error, "records", 0))
        return RunError(f"step {task.name!r} could not finish: {text_of(error)}", step=task.name)
    return None


@answering_at_once()  # what a sink has gathered is written now, and the end of the run waits for it
def _closing(run: EngineRun, task: Task, close: Callable[[], None], broken: list[BaseException]) -> None:
    has_warned = False
    while True:
        try:
            close()
        except NoRoomError as error:
            if not run.aborted and not run.gives_up_room and not task.failures.stops:
                if not has_warned:
                    log.warning("sink %s waits until there is room: %s", task.name, one_line(str(error)))
                    has_warned = True
                time.sleep(_LOOK_S)
                continue
            broken.append(error)
            if isinstance(task.operator, WriteOperator):
                task.operator.abandon()
        except BaseException as error:  # sys.exit() too: nobody else would hear of it
            broken.append(error)
        return


def text_of(error: BaseException) -> str:
    """Return what an error says, or what it is when it says nothing."""
    return str(error) or type(error).__name__
