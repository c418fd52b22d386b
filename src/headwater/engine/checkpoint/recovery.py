"""Which part of a checkpoint belongs to which task of a run that goes on from it.

The flow may have changed: a step that is new starts empty, one that is gone is named, and a keyed step may have another
number of instances. What cannot be right is told before anything starts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.engine.checkpoint.store import Checkpoint
from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.flow.identity import differs, identity_of
from headwater.flow.steps import Read
from headwater.operators.execution_graph import ExecutionGraph, Instance
from headwater.operators.operator import Select, spread
from headwater.operators.queue import Delivery
from headwater.operators.task import Task

VERSION = 1
_BY_SIZE = ("WindowAggregate", "Join")  #: kinds whose state means something else when they are described otherwise
Saved = dict[str, Any]  #: what `Task.save` gave, its queue and the inputs its channels belonged to


def described(flow: Flow) -> dict[str, Any]:
    """Describe what saved state depends on: the steps, how they are joined, their columns."""
    kept = ("kind", "does", "inputs", "outputs", "parallel")
    return {step["name"]: {name: step[name] for name in kept} for step in flow.to_json()["steps"]}


def identities(flow: Flow) -> dict[str, Any]:
    """Return what each source is: a position in one means nothing in another."""
    return {step.name: identity_of(step.kind.source) for step in flow.steps.values() if isinstance(step.kind, Read)}


def heading(flow: Flow, sources: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint says of the run that makes it, so that a later one can tell whether it may go on from it."""
    return {
        "version": VERSION,
        "flow": flow.name,
        "made": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "steps": described(flow),
        "sources": sources,
    }


class Recovery:
    """A checkpoint, held against the flow that is to go on from it."""

    def __init__(
        self, checkpoint: Checkpoint, graph: ExecutionGraph, *, allow_dropped: bool = False, check: bool = True
    ) -> None:
        """Raise RunError where the flow cannot go on from the checkpoint, with the reason, unless that was found out."""
        self.number, self._content, self._graph = checkpoint.number, checkpoint.content, graph
        if self._content.get("version") != VERSION:
            raise RunError(
                f"the checkpoint has version {self._content.get('version')}; this Headwater reads version {VERSION}"
            )
        self._of_step: dict[str, list[Instance]] = {}
        for instance in graph.instances:
            self._of_step.setdefault(instance.step.name, []).append(instance)
        if check:
            self._check(allow_dropped=allow_dropped)

    def knows(self, name: str) -> bool:
        """Say whether there was a step of this name."""
        return name in self._content["steps"]

    def position(self, instance: Instance) -> Any:
        """Return how far a source was read; None for one that is new."""
        known = self._content["positions"].get(instance.step.name, [])
        return known[instance.number] if instance.number < len(known) else None

    def load(self, task: Task) -> None:
        """Give a task its state: its own, or the share of its keys where the number of instances has changed."""
        saved = self._saved(task.name)
        instances = self._of_step[task.name]
        if not saved:
            return
        number = task.instance.number
        if len(saved) == len(instances):
            task.load(self._fitted(saved[number], task.instance))
            return
        assert task.operator is not None
        if task.operator.timed and len({(each["watermark"], each["ended"]) for each in saved}) > 1:
            raise RunError(
                f"step {task.name!r} had {len(saved)} instances then and has {len(instances)} now; they had come "
                "differently far in time when their run was cut off, so that what they keep cannot be put together. "
                f"Run the flow with {len(saved)} once more, stop it (Ctrl-C), and change their number then"
            )
        together = {
            "watermark": min(each["watermark"] for each in saved),
            "ended": all(each["ended"] for each in saved),
        }
        for each in saved:
            task.load(self._fitted({**each, **together}, task.instance))
        for part in range(len(instances)):
            if part != number:
                task.operator.forget(Select(part, len(instances)))

    def queues(self) -> list[Delivery]:
        """Return what was on its way when the checkpoint was made."""
        found: list[Delivery] = []
        for name, instances in self._of_step.items():
            saved = self._saved(name)
            for number, each in enumerate(saved):
                same = len(saved) == len(instances) and each["ports"] == instances[number].channel_ports
                for channel, batch, watermark in each["queue"]:
                    port = each["ports"][channel]
                    if same:
                        # who has ended will say so once more, perhaps after it has sent what was not there then
                        at = NO_WATERMARK if watermark == END else watermark
                        found.append(_delivery(instances[number], channel, batch, at))
                    elif batch is not None:  # without its watermark, which is that of one sender among others
                        others = len(saved) != len(instances)
                        parts = self._spread(instances, port, batch) if others else [(instances[number], batch)]
                        for to, part in parts:
                            found.append(_delivery(to, to.channel_ports.index(port), part, NO_WATERMARK))
        return found

    def _spread(self, instances: list[Instance], port: int, batch: Batch) -> list[tuple[Instance, Batch]]:
        keys = instances[0].step.inputs[port].keys
        parts = spread(batch, keys, len(instances)) if keys else [batch]
        return [(instances[number], part) for number, part in enumerate(parts) if part is not None]

    def _fitted(self, saved: Saved, instance: Instance) -> Saved:
        """Return what was saved for the channels that the task has now: all at the earliest where others sent then."""
        if saved["ports"] == instance.channel_ports:
            return saved
        earliest = min(saved["watermarks"], default=None)
        if earliest is None:
            return saved
        return {**saved, "watermarks": [earliest] * len(instance.channel_ports), "idle": []}

    def _saved(self, name: str) -> list[Saved]:
        found: list[Saved] = self._content["tasks"].get(name, [])
        return found

    # -- may it go on? ----------------------------------------------------------------------------------------------------

    def _check(self, *, allow_dropped: bool) -> None:
        flow = self._graph.flow
        before, now = self._content["steps"], described(flow)
        if self._content["flow"] != flow.name:
            raise RunError(
                f"the checkpoint belongs to flow {self._content['flow']!r}, not to {flow.name!r}; "
                "give each flow a folder of its own"
            )
        gone = [name for name in before if name not in now and self._keeps(name)]
        if gone and not allow_dropped:
            names = ", ".join(map(repr, gone))
            raise RunError(
                f"flow {flow.name!r} had {'a step' if len(gone) == 1 else 'steps'} {names} then, whose state would be "
                "lost; rename it back, or say --allow-dropped-state (allow_dropped_state=True)"
            )
        lanes = self._content.get("lanes", 1)
        if lanes != 1:
            raise RunError(
                f"it was made in {lanes} lanes, whose state is not put together yet; run with lanes={lanes} "
                f"(--lanes {lanes})"
            )
        self._check_renamed(now)
        for name, step in now.items():
            if name in before:
                self._check_step(name, before[name], step)
        for name, identity in self._content["sources"].items():
            kind = flow.steps[name].kind if name in flow.steps else None
            if isinstance(kind, Read) and (difference := differs(kind.source, identity)):
                raise RunError(f"source {name!r} is another: {difference}")

    def _check_renamed(self, now: dict[str, Any]) -> None:
        """Refuse a source under another name: it would be read from its beginning, into state that has its records."""
        known: dict[str, Any] = self._content["sources"]
        gone = {name: identity for name, identity in known.items() if name not in now}
        for name, step in self._graph.flow.steps.items():
            if isinstance(step.kind, Read) and name not in known:
                for before, identity in gone.items():
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
        keyed = [[given["keys"] for given in step["inputs"]] for step in (before, now)]
        if keyed[0] != keyed[1]:
            raise RunError(f"step {name!r} had other inputs or keys then: {_told(keyed[0])}, now {_told(keyed[1])}")
        if before["outputs"] != now["outputs"] and self._keeps(name):
            raise RunError(
                f"step {name!r} gave {_columns(before)} then, and gives {_columns(now)} now; what it has saved does "
                "not fit. Give the step a new name, and it starts empty"
            )
        if before.get("does") != now["does"] and now["kind"] in _BY_SIZE and self._keeps(name) and "does" in before:
            raise RunError(
                f"step {name!r} was '{before['does']}' then, and is '{now['does']}' now; what it has saved does not fit. "
                "Give the step a new name, and it starts empty"
            )
        saved = self._saved(name)
        if saved and len(saved) != len(self._of_step[name]) and self._keeps(name) and not all(keyed[1]):
            raise RunError(
                f"step {name!r} had {len(saved)} instances then and has {len(self._of_step[name])} now; its state is not "
                "by key, so it cannot be split. Give it as many instances as it had"
            )
        if now["kind"] == "Read" and len(self._content["positions"].get(name, [])) not in (0, len(self._of_step[name])):
            raise RunError(f"source {name!r} was read by another number of instances then; give it as many as it had")

    def _keeps(self, name: str) -> bool:
        """Say whether anything would be lost without a step: state, or records on their way to it."""
        return any(each["state"] or each["queue"] for each in self._saved(name))


def _delivery(instance: Instance, channel: int, batch: Batch | None, watermark: int) -> Delivery:
    return Delivery(instance.index, channel, batch, watermark, 1 if batch is None else batch.length)


def _columns(step: dict[str, Any]) -> str:
    main: dict[str, str] = next(iter(step["outputs"].values()), {})
    return "(" + ", ".join(f"{name}: {kind}" for name, kind in main.items()) + ")"


def _told(keys: list[list[str]]) -> str:
    return "; ".join(", ".join(each) or "no key" for each in keys) or "none"
