"""What becomes of a batch that breaks a step: the records at fault are found, and the others go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from headwater.data.batch import Batch
from headwater.errors import RecordError
from headwater.operators.operator import DEAD, Output, dead_letters, split_off_broken

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_INSTALLED = ("site-packages", "dist-packages", str(Path(traceback.__file__).resolve().parent))


def error_text(error: BaseException) -> str:
    """Return what an error is, in a line, with the line of the user's own code that raised it, if any did."""
    message = f"{type(error).__name__}: {error}"
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        path, ours = frame.f_code.co_filename, frame.f_globals.get("__name__", "").startswith("headwater.")
        if not ours and not path.startswith(_PACKAGE) and not any(part in path for part in _INSTALLED):
            return f"{message} ({Path(path).name}:{line}, in {frame.f_code.co_name})"
    return message


def without_the_broken(
    run: Callable[[Batch], Output], batch: Batch, error: Exception, step: str
) -> list[tuple[int, Batch]]:
    """Run a batch that failed with `error` again without the records at fault, which are dead letters.

    If the error does not name them, they are found by halves, in order. When `run` fails, all must be as if it had never
    been called.
    """
    outputs: list[tuple[int, Batch]] = []
    if isinstance(error, RecordError):
        rest, letters = split_off_broken(error, batch, step)
        outputs.append((DEAD, letters))
        parts = [rest] if rest.length else []
    elif batch.length == 1:
        return [(DEAD, dead_letters(step, [error_text(error)], batch))]
    else:
        middle = batch.length // 2
        parts = [batch.slice(0, middle), batch.slice(middle, batch.length)]
    for part in parts:
        try:
            outputs += as_list(run(part))
        except Exception as failure:
            outputs += without_the_broken(run, part, failure, step)
    return outputs


def as_list(result: Output) -> list[tuple[int, Batch]]:
    """Return what came out of an operator as (output, batch) pairs."""
    if result is None:
        return []
    return [(0, result)] if isinstance(result, Batch) else result
