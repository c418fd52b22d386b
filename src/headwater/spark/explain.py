"""Says how a flow would run on Spark: its stages, which step goes where, and why."""

from __future__ import annotations

from typing import Any

from headwater.flow.flow import Flow
from headwater.flow.steps import Read
from headwater.spark.pruning import columns_used
from headwater.spark.sinks import told_of
from headwater.spark.sources import way_of
from headwater.spark.stages import Layout, Stage, cut


def explained(flow: Flow, buckets: int = 1) -> dict[str, Any]:
    """Return the stages as plain data; a flow that cannot run on Spark is refused as a run would."""
    layout = cut(flow, buckets)
    return {
        "flow": flow.name,
        "moves": layout.levels,
        "python_hops": layout.levels + 1,
        "stages": [_stage(layout, stage) for stage in sorted(layout.stages, key=lambda s: (s.level, s.number))],
    }


def _stage(layout: Layout, stage: Stage) -> dict[str, Any]:
    return {
        "stage": stage.number,
        "level": stage.level,
        "where": _where(stage),
        "reads": [
            {
                "stream": " ".join(entry.stream).removesuffix(" out"),
                "from": list(entry.senders),
                "spread": _spread(entry),
            }
            for entry in layout.entries
            if entry.stage == stage.number
        ],
        "steps": [
            {"name": name, "does": str(layout.flow.steps[name].kind), "why": _why(layout, stage, name)}
            for name in stage.steps
        ],
    }


def _where(stage: Stage) -> str:
    match stage.kind:
        case "source":
            return "where the source is read"
        case "key":
            return f"in buckets of {', '.join(stage.keys)}"
        case "even":
            return "in buckets of equal size"
    return "in one place"


def _spread(entry: Any) -> str:
    ways = {"key": f"by {', '.join(entry.keys)}", "all": "to all buckets", "even": "evenly", "one": "to one place"}
    return ways[entry.spread]


def _why(layout: Layout, stage: Stage, name: str) -> str:
    step = layout.flow.steps[name]
    if isinstance(step.kind, Read):
        return f"read {way_of(step.kind.source, columns_used(layout.flow, name))}"
    if step.is_sink:
        return told_of(step)
    return stage.why[name]


def explanation_text(answer: dict[str, Any]) -> str:
    """Write the stages for people."""
    moves = answer["moves"]
    often = {0: "records never move", 1: "records move once"}.get(moves, f"records move {moves} times")
    counted = f"{_several(len(answer['stages']), 'stage')}, {often}, {_several(moves + 1, 'hop')} into Python"
    lines = [f"{answer['flow']} on Spark: {counted}"]
    for stage in answer["stages"]:
        lines += ["", f"stage {stage['stage']}: {stage['where']}"]
        for stream in stage["reads"]:
            senders = ", ".join(str(number) for number in stream["from"])
            lines.append(f"  ← {stream['stream']} of stage {senders}, {stream['spread']}")
        width = max(len(step["name"]) for step in stage["steps"])
        lines += [f"  {step['name']:{width}}  {step['does']}  ({step['why']})" for step in stage["steps"]]
    return "\n".join(lines)


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
