"""Pictures of a flow: a text tree, Mermaid, SVG."""

from __future__ import annotations

from html import escape

from headwater.flow.flow import Flow
from headwater.flow.steps import Step

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 190, 46, 60, 18


def tree(flow: Flow) -> str:
    """Draw the flow as an indented tree from its sources; a step with several inputs is drawn once, then named.

    >>> from headwater.io import Discard, Items
    >>> from headwater.flow import col
    >>> flow = Flow("tanks")
    >>> flow.read("levels", Items([{"height": 1.0}])).filter("low", col.height < 150).write("out", Discard())
    >>> print(tree(flow))
    tanks
    └─ levels: read Items(1 items)
       └─ low: filter (col.height < 150)
          └─ out: write Discard
    """
    lines = [flow.name]
    drawn: set[str] = set()
    roots = [step for step in flow.steps.values() if not step.inputs]
    for i, root in enumerate(roots):
        _branch(flow, root, "", i == len(roots) - 1, "", lines, drawn)
    return "\n".join(lines)


def _branch(flow: Flow, step: Step, indent: str, last: bool, label: str, lines: list[str], drawn: set[str]) -> None:
    elbow = "└─ " if last else "├─ "
    if step.name in drawn:
        lines.append(f"{indent}{elbow}{label}{step.name} (above)")
        return
    drawn.add(step.name)
    count = f" x{step.instances}" if step.instances > 1 else ""
    lines.append(f"{indent}{elbow}{label}{step.name}{count}: {step.kind}")
    below = [(reader, edge) for reader in flow.steps.values() for edge in reader.inputs if edge.step == step.name]
    for i, (reader, edge) in enumerate(below):
        marks = [] if edge.port == "out" else [edge.port]
        marks += [f"by {', '.join(edge.keys)}"] if edge.grouping == "key" else []
        marks += [f"to {edge.grouping}"] if edge.grouping in ("all", "one") and not edge.keys else []
        note = f"[{'; '.join(marks)}] " if marks else ""
        _branch(flow, reader, indent + ("   " if last else "│  "), i == len(below) - 1, note, lines, drawn)


def mermaid(flow: Flow) -> str:
    """Draw the flow as a Mermaid flowchart."""
    numbers = {name: f"s{i}" for i, name in enumerate(flow.steps)}
    lines = ["flowchart LR"]
    for name, step in flow.steps.items():
        text = f"{name}{f' x{step.instances}' if step.instances > 1 else ''}".replace('"', "'")
        shape = ("([", "])") if step.is_source or step.is_sink else ("[", "]")
        lines.append(f'    {numbers[name]}{shape[0]}"{text}"{shape[1]}')
    for name, step in flow.steps.items():
        for edge in step.inputs:
            label = f"|{edge.port}|" if edge.port != "out" else ""
            lines.append(f"    {numbers[edge.step]} -->{label} {numbers[name]}")
    return "\n".join(lines)


def svg(flow: Flow) -> str:
    """Draw the flow as an SVG picture, sources at the left."""
    places = _places(flow)
    width = max(x for x, _ in places.values()) + _WIDTH + 20
    height = max(y for _, y in places.values()) + _HEIGHT + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
    ]
    for name, step in flow.steps.items():
        x, y = places[name]
        for edge in step.inputs:
            x0, y0 = places[edge.step][0] + _WIDTH, places[edge.step][1] + _HEIGHT / 2
            y1, bend = y + _HEIGHT / 2, (x - x0) / 2
            dash = ' stroke-dasharray="5 3"' if edge.port != "out" else ""
            parts.append(
                f'<path d="M{x0} {y0}C{x0 + bend} {y0} {x - bend} {y1} {x} {y1}" fill="none" stroke="#667"'
                f'{dash} marker-end="url(#arrow)"/>'
            )
    for name, step in flow.steps.items():
        parts.append(_box(name, step, *places[name]))
    return "\n".join([*parts, "</svg>"])


def _box(name: str, step: Step, x: float, y: float) -> str:
    fill = "#e6f2e6" if step.is_source else "#f6ead9" if step.is_sink else "#e8edf7"
    title = name + (f" ×{step.instances}" if step.instances > 1 else "")
    does = str(step.kind)
    does = does if len(does) <= 30 else does[:29] + "…"
    return (
        f"<g><title>{escape(f'{name}: {step.kind}')}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{fill}" stroke="#667"/>'
        f'<text x="{x + 10}" y="{y + 19}" font-weight="bold">{escape(title)}</text>'
        f'<text x="{x + 10}" y="{y + 36}" fill="#445" font-size="10">{escape(does)}</text></g>'
    )


def _places(flow: Flow) -> dict[str, tuple[float, float]]:
    """Put each step one column right of the last one it reads, and columns one below the other."""
    column: dict[str, int] = {}
    for step in flow.in_order():
        column[step.name] = 1 + max((column[edge.step] for edge in step.inputs), default=-1)
    rows: dict[int, int] = {}
    places = {}
    for name, at in column.items():
        row = rows.get(at, 0)
        rows[at] = row + 1
        places[name] = (10.0 + at * (_WIDTH + _GAP_X), 10.0 + row * (_HEIGHT + _GAP_Y))
    return places
