"""Says how a flow would run on Spark: its stages, which step goes where, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.flow.flow import Flow
from headwater.flow.steps import Read
from headwater.spark.heads import Head, cut_behind, heads_of, read_by_spark
from headwater.spark.native import reads
from headwater.spark.options import Meaning
from headwater.spark.relations import describe
from headwater.spark.sinks import delivery_text
from headwater.spark.sources import way_of
from headwater.spark.stages import Layout, Stage, cut


def explained(flow: Flow, buckets: int = 1, meaning: Meaning = "headwater") -> dict[str, Any]:
    """Return the stages as plain data; a flow that cannot run on Spark is refused as a run would."""
    flow = read_by_spark(flow, meaning)
    cut(flow, buckets)  # refused as it is
    heads = heads_of(flow, meaning)
    layout = cut_behind(flow, heads, buckets)
    return {
        "flow": flow.name,
        "meaning": meaning,
        "moves": layout.levels,
        "python_hops": layout.levels + 1,
        "by_spark": [_head(flow, head) for head in heads.values() if meaning == "spark" or _might(flow, head)],
        "stages": [_stage(layout, stage, heads) for stage in sorted(layout.stages, key=lambda s: (s.level, s.number))],
    }


def _might(flow: Flow, head: Head) -> bool:
    """Say whether Spark could run something of a source, since it reads it."""
    source = flow.steps[head.source].kind
    return isinstance(source, Read) and reads(source.source) is not None


def _head(flow: Flow, head: Head) -> dict[str, Any]:
    """Tell what Spark's own operators do with a source, and why no more."""
    return {
        "source": ", ".join(head.sources),
        "steps": [
            {"name": step.name, "does": str(step.kind), "runs": "in Spark", "why": describe(step)}
            for step in head.all_steps
        ],
        "stopped": {"step": head.stopped, "why": head.why} if head.stopped else None,
    }


def _stage(layout: Layout, stage: Stage, heads: Mapping[str, Head]) -> dict[str, Any]:
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
            {
                "name": name,
                "does": str(layout.flow.steps[name].kind),
                "runs": "in Python",
                "why": _why(layout, stage, name, heads),
            }
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


def _why(layout: Layout, stage: Stage, name: str, heads: Mapping[str, Head]) -> str:
    step = layout.flow.steps[name]
    if isinstance(step.kind, Read):
        head = heads[name]
        behind = f", behind {head.steps[-1].name!r}" if head.steps else ""
        return f"read {way_of(step.kind.source, head.columns)}{behind}"
    if step.is_sink:
        return delivery_text(step)
    return stage.why[name]


def explanation_text(answer: dict[str, Any]) -> str:
    """Write the stages for people."""
    moves = answer["moves"]
    often = {0: "records never move", 1: "records move once"}.get(moves, f"records move {moves} times")
    counted = f"{_several(len(answer['stages']), 'stage')}, {often}, {_several(moves + 1, 'hop')} into Python"
    lines = [f"{answer['flow']} on Spark: {counted}"]
    for head in answer["by_spark"]:
        lines += ["", f"Spark's own operators, behind source {head['source']}:"]
        width = max((len(step["name"]) for step in head["steps"]), default=0)
        lines += [f"  {step['name']:{width}}  {step['does']}  ({step['why']})" for step in head["steps"]]
        if head["stopped"]:
            where = "and then Python" if head["steps"] else "none"
            lines.append(f"  {where}: {head['stopped']['step']}: {head['stopped']['why']}")
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
