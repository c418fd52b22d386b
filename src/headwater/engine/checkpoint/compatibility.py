"""Whether a flow can go on from a checkpoint, and from what: what cannot be right is told before anything starts.

The flow may have changed: a step that is new starts empty, one that is gone is named. It may be spread otherwise, over other
numbers of instances or lanes: state by key then goes where its keys go.
"""

from __future__ import annotations

import logging
from typing import Any

from headwater.engine.checkpoint.distribution import Distribution
from headwater.engine.checkpoint.drain import Unsent, drain
from headwater.engine.checkpoint.recovery import VERSION, Recovery, describe
from headwater.engine.checkpoint.store import Checkpoint
from headwater.errors import RunError
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.identity import differs
from headwater.flow.steps import Read
from headwater.operators.execution_graph import ExecutionGraph

log = logging.getLogger(__name__)


class Compatibility:
    """A checkpoint, held against the flow that is to go on from it, spread in its way."""

    def __init__(
        self, checkpoint: Checkpoint, flow: Flow, now: Distribution | None = None, *, allow_dropped: bool = False
    ) -> None:
        """Raise RunError where the flow cannot go on from the checkpoint, with the reason."""
        self.checkpoint, self._flow, self.now = checkpoint, flow, now or Distribution()
        self._content = checkpoint.content
        if self._content.get("version") != VERSION:
            raise RunError(
                f"the checkpoint has version {self._content.get('version')}; this Headwater reads version {VERSION}"
            )
        self._check(allow_dropped=allow_dropped)

    def _check(self, *, allow_dropped: bool) -> None:
        flow = self._flow
        before, now = self._content["steps"], describe(flow)
        if self._content["flow"] != flow.name:
            raise RunError(
                f"the checkpoint belongs to flow {self._content['flow']!r}, not to {flow.name!r}; "
                "give each flow a folder of its own"
            )
        missing = [name for name in before if name not in now and self._keeps(name)]
        if missing and not allow_dropped:
            names = ", ".join(map(repr, missing))
            raise RunError(
                f"flow {flow.name!r} had {'a step' if len(missing) == 1 else 'steps'} {names} then, whose state would be "
                "lost; rename it back, or say --allow-dropped-state (allow_dropped_state=True in Python, "
                "allow_dropped_state = true in the .toml of a flow that is served)"
            )
        self._check_renamed(now)
        self.then = Distribution.of(self._content, flow)
        for name, step in now.items():
            if name in before and name != DEAD_LETTERS:  # which has an input for each other site
                self._check_step(name, before[name], step)
                self._check_queue(name, before, now)
        for name, identity in self._content["sources"].items():
            kind = flow.steps[name].kind if name in flow.steps else None
            if isinstance(kind, Read) and (difference := differs(kind.source, identity)):
                raise RunError(f"source {name!r} is another: {difference}")

    def _check_renamed(self, now: dict[str, Any]) -> None:
        """Refuse a source under another name: it would be read from its beginning, into state that has its records."""
        sources: dict[str, Any] = self._content["sources"]
        missing = {name: identity for name, identity in sources.items() if name not in now}
        for name, step in self._flow.steps.items():
            if isinstance(step.kind, Read) and name not in sources:
                for before, identity in missing.items():
                    if not differs(step.kind.source, identity):
                        raise RunError(
                            f"source {name!r} was called {before!r} then; under another name it would be read from its "
                            "beginning, into state that has its records. Name it as before"
                        )

    def _check_step(self, name: str, before: dict[str, Any], now: dict[str, Any]) -> None:
        if before["kind"] != now["kind"]:
            raise RunError(
                f"step {name!r} was of kind {before['kind']} then, and is {now['kind']} now; give it a new name"
            )
        keyed = [[edge["keys"] for edge in step["inputs"]] for step in (before, now)]
        if keyed[0] != keyed[1]:
            then, today = map(_keys_text, keyed)
            raise RunError(f"step {name!r} had other inputs or keys then: {then}, now {today}")
        if before["outputs"] != now["outputs"] and self._keeps(name):
            raise RunError(
                f"step {name!r} gave {_columns(before)} then, and gives {_columns(now)} now; what it has saved does "
                "not fit. Give the step a new name, and it starts empty"
            )
        self._warn_of_other_columns(name, before, now)
        if before.get("keeps", now["keeps"]) != now["keeps"] and self._keeps(name):
            raise RunError(
                f"step {name!r} was '{before['keeps']}' then, and is '{now['keeps']}' now; what it has saved does not fit. "
                "Give the step a new name, and it starts empty"
            )
        self._check_spread(name)
        count = len(self._content["positions"].get(name, []))
        if now["kind"] == "Read" and count not in (0, now["parallel"]):
            raise RunError(f"source {name!r} was read by another number of instances then; give it as many as it had")

    def _warn_of_other_columns(self, name: str, before: dict[str, Any], now: dict[str, Any]) -> None:
        """Say so where a step that keeps nothing gives other columns; not of those behind it, which give what they get."""
        steps = self._content["steps"]
        is_cause = _input_columns(steps, name) == _input_columns(describe(self._flow), name)
        if before["outputs"] != now["outputs"] and is_cause:
            log.warning(
                "step %s gave %s at the checkpoint, and gives %s now; it keeps nothing, so the flow goes on with these",
                name,
                _columns(before),
                _columns(now),
            )

    def _check_queue(self, name: str, before: dict[str, Any], now: dict[str, Any]) -> None:
        """Refuse to give a step records that were on their way to it, and have columns that it does not get any more."""
        old, new = _input_columns(before, name), _input_columns(now, name)
        if old is None or new is None:
            return
        if old != new and any(batch is not None for each in self._tasks_of(name) for _, batch, _ in each["queue"]):
            raise RunError(
                f"step {name!r} got {'; '.join(map(_columns_text, old))} then, and gets "
                f"{'; '.join(map(_columns_text, new))} now; records were on their way to it when the run was cut off, which "
                "do not fit. Run the flow as it was once more, stop it (Ctrl-C), and change it then"
            )

    def _check_spread(self, name: str) -> None:
        """Refuse to spread anew what is not by key, or by a key that does not say where it belongs."""
        step, tasks = self._flow.steps[name], self._tasks_of(name)
        if self.is_same(name) or not any(each["state"] for each in tasks):
            return
        was, now = self.then.share_text(name, len(tasks)), self.now.share_text(name, step.instances)
        if step.state == "all":
            raise RunError(
                f"step {name!r} had {was} then and has {now} now; its state is not by key, so it cannot be split. Give it "
                "as many instances as it had"
            )
        if step.state == "key" and not self.now.tells_lane(step):
            edge, lanes = step.inputs[0], self.then.lanes
            raise RunError(
                f"step {name!r} had {was} then and has {now} now; its state is by {', '.join(edge.keys)} alone, and lanes "
                f"have the records of each {', '.join(edge.of) or 'part of a key'}, which the state does not tell. Run "
                f"with lanes={lanes} (--lanes {lanes}), as then" + ("" if lanes == 1 else ", or with lanes=1")
            )

    def is_same(self, name: str) -> bool:
        """Say whether a step is spread as it was, so that each instance has what it had."""
        step, tasks = self._flow.steps[name], self._tasks_of(name)
        if step.is_source or name == DEAD_LETTERS or not tasks:
            return True
        return self.then.shares(step, len(tasks)) == self.now.shares(step, step.instances)

    def goes_on_as_it_was(self) -> bool:
        """Say whether every task may take what one had, and what was on its way to it."""
        blocks = [name for name in self._flow.steps if self.then.takes_blocks(name)]
        return (
            self.then.lanes == self.now.lanes
            and all(map(self.is_same, self._flow.steps))
            and not any(each["queue"] for name in blocks for each in self._tasks_of(name))  # whose numbers begin anew
        )

    def recovery(self, graph: ExecutionGraph) -> Recovery:
        """Return what the tasks of one process that runs all of the flow get."""
        as_it_was = self.goes_on_as_it_was()
        return Recovery(self.checkpoint, graph) if as_it_was else Recovery(self.at_rest(), graph, self.then, self.now)

    def at_rest(self, unsent: Unsent | None = None) -> Checkpoint:
        """Return the checkpoint with nothing on its way but to sinks, so that what it holds can be spread anew."""
        return drain(self.checkpoint, self._flow, self.then, unsent or {})

    def _tasks_of(self, name: str) -> list[dict[str, Any]]:
        tasks: list[dict[str, Any]] = self._content["tasks"].get(name, [])
        return tasks

    def _keeps(self, name: str) -> bool:
        """Say whether anything would be lost without a step: state, or records on their way to it."""
        return any(each["state"] or each["queue"] for each in self._tasks_of(name))


def _columns(step: dict[str, Any]) -> str:
    return _columns_text(next(iter(step["outputs"].values()), {}))


def _input_columns(steps: dict[str, Any], name: str) -> list[dict[str, str]] | None:
    """Return the columns that a step gets by each of its inputs; None where one of them is at another site since a move."""
    if not all(edge["step"] in steps for edge in steps[name]["inputs"]):
        return None
    return [steps[edge["step"]]["outputs"][edge["port"]] for edge in steps[name]["inputs"]]


def _columns_text(columns: dict[str, str]) -> str:
    return "(" + ", ".join(f"{name}: {kind}" for name, kind in columns.items()) + ")"


def _keys_text(keys: list[list[str]]) -> str:
    return "; ".join(", ".join(each) or "no key" for each in keys) or "none"
