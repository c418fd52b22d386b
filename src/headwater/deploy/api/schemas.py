"""What an API of sites and plans takes and gives, as schemas of its OpenAPI document."""

from __future__ import annotations

import msgspec

from headwater.deploy.api import requests
from headwater.serve.schema import (
    ANY_OBJECT,
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    Schema,
    about,
    list_of,
    map_of,
    named,
    object_of,
    perhaps,
)

_, _REQUESTS = msgspec.json.schema_components(
    [
        requests.MoveRequest,
        requests.DrainRequest,
        requests.OpenRequest,
        requests.PlanRequest,
        requests.FrontRequest,
        requests.TryRequest,
        requests.RehearsalRequest,
    ],
    ref_template="#/components/schemas/{name}",
)


def _and_perhaps(schema: Schema, **others: Schema) -> Schema:
    """Return the schema of an object that may have more."""
    return {**schema, "properties": schema["properties"] | others}


_MEASURES = object_of(
    critical=about(perhaps(NUMBER), "seconds on the slowest path; null where it has no end"),
    aggregate=about(perhaps(NUMBER), "seconds of all paths"),
    wan=about(perhaps(NUMBER), "bytes a second between sites"),
    energy=about(perhaps(NUMBER), "the share of its budget that the fullest battery gives"),
    money=about(perhaps(NUMBER), "an hour"),
    devices=WHOLE,
)
_ELSEWHERE = object_of(device=TEXT, value=perhaps(NUMBER), worse_by=perhaps(NUMBER), because=TEXT)
_PAIR = about(list_of(TEXT), "from where, and to where")

SCHEMAS: dict[str, Schema] = {
    **_REQUESTS,
    "object": ANY_OBJECT,
    "Error": object_of(error=TEXT),
    "Sites": _and_perhaps(
        object_of(
            flow=perhaps(named("DeployedFlow")),
            sites=list_of(named("Site")),
            links=list_of(named("Link")),
            net=perhaps(object_of(name=TEXT, sites=list_of(named("Place")))),
        ),
        why=about(TEXT, "why nobody can say more; where a coordinator answers, it is not there"),
    ),
    "DeployedFlow": _and_perhaps(
        object_of(name=TEXT, id=TEXT, phase=TEXT, moving=TRUTH),
        moved=about(ANY_OBJECT, "what came of the last move"),
        moves=list_of(named("Move")),
        policy=perhaps(named("Policy")),
    ),
    "Move": object_of(
        id=TEXT,
        at_s=about(NUMBER, "seconds since 1970"),
        by=about(TEXT, "a policy, or hand"),
        why=TEXT,
        steps=map_of(_PAIR),
        state=TEXT,
        stages_s=about(map_of(NUMBER), "how long each stage took: prepare, ahead, stop, cut, hand over, start"),
        gap_s=about(perhaps(NUMBER), "from when the old parts were told to stop until all new ones were at work"),
        undone=about(TEXT, "why it came to nothing"),
    ),
    "Policy": object_of(
        name=TEXT,
        contract=perhaps(TEXT),
        waits=TEXT,
        rates_hz=about(map_of(NUMBER), "of sources, where what was measured differs from what was said"),
        drained=list_of(TEXT),
        held=about(map_of(TEXT), "steps that somebody moved by hand, which stay: the site of each"),
        moves=WHOLE,
        decisions=list_of(named("Decision")),
    ),
    "Decision": object_of(
        id=TEXT,
        at_s=NUMBER,
        why=TEXT,
        moves=map_of(_PAIR),
        expects=about(map_of(list_of(perhaps(NUMBER))), "by measure: as it was, and as it should be"),
        came=about(perhaps(ANY_OBJECT), "once it is over"),
        measured=about(map_of(list_of(perhaps(NUMBER))), "as parts told it: before, and some seconds after it"),
    ),
    "Site": _and_perhaps(
        object_of(name=TEXT, here=TRUTH, steps=list_of(TEXT), state=TEXT, why=TEXT),
        address=TEXT,
        kind=about(TEXT, "what runs its parts: engine or spark"),
        memory_bytes=WHOLE,
        load=about(perhaps(NUMBER), "processes that want a core"),
        free_bytes=about(perhaps(WHOLE), "on its disk"),
        cores=NUMBER,
        free_memory_bytes=WHOLE,
        price=about(perhaps(NUMBER), "an hour"),
        carbon=about(perhaps(NUMBER), "g CO₂ a kWh"),
        promised=about(ANY_OBJECT, "cores: capacity, held and left; windows of a second: kept and broken"),
        promise=about(
            perhaps(object_of(cores=NUMBER, kept=WHOLE, broken=WHOLE, causes=map_of(WHOLE))), "to its part of the flow"
        ),
        pid=perhaps(WHOLE),
        lanes=about(WHOLE, "processes that share the work of its part"),
        restarts=WHOLE,
        records_in=WHOLE,
        records_out=WHOLE,
        others=about(list_of(TEXT), "parts of other flows"),
    ),
    "Link": object_of(
        **{"from": TEXT},
        to=TEXT,
        streams=list_of(object_of(stream=TEXT, records=WHOLE, hz=NUMBER)),
        hz=about(NUMBER, "records a second, over five seconds"),
        latency_s=about(perhaps(NUMBER), "as the net has it"),
    ),
    "Place": object_of(
        name=TEXT,
        x=perhaps(NUMBER),
        y=perhaps(NUMBER),
        cloud=TRUTH,
        trust=TEXT,
        devices=WHOLE,
        price=about(NUMBER, "of its dearest device, an hour"),
    ),
    "Choices": object_of(
        flows=list_of(object_of(flow=TEXT, name=TEXT, steps=list_of(TEXT))), nets=list_of(TEXT), measures=list_of(TEXT)
    ),
    "Placement": _and_perhaps(
        object_of(
            objective=TEXT,
            status=TEXT,
            proven=TRUTH,
            value=perhaps(NUMBER),
            bound=perhaps(NUMBER),
            placement=about(map_of(TEXT), "the device of each step"),
            reason=TEXT,
            broken=about(list_of(TEXT), "limits that it would break"),
            pinned=list_of(TEXT),
            offers=list_of(object_of(device=TEXT, zone=TEXT, **{"class": TEXT}, cloud=TRUTH)),
            why=list_of(
                object_of(
                    step=TEXT,
                    device=TEXT,
                    pinned=TRUTH,
                    next_best=perhaps(_ELSEWHERE),
                    forbidden=list_of(_ELSEWHERE),
                    tried=WHOLE,
                )
            ),
            paths=list_of(object_of(sink=TEXT, latency_s=NUMBER, steps=list_of(TEXT))),
            devices=list_of(object_of(device=TEXT, zone=TEXT, steps=list_of(TEXT), utilisation=NUMBER)),
            links=list_of(
                object_of(stream=TEXT, **{"from": TEXT}, to=TEXT, bps=NUMBER, share=NUMBER, latency_s=NUMBER, wan=TRUTH)
            ),
            binding=list_of(object_of(kind=TEXT, device=TEXT, share=NUMBER, binds=TRUTH)),
        ),
        measures=_MEASURES,
    ),
    "Front": object_of(one=TEXT, other=TEXT, points=list_of(named("Placement"))),
    "Rehearsal": object_of(
        records_in=WHOLE,
        latency_ms=object_of(p50=NUMBER, p95=NUMBER, p99=NUMBER),
        sinks=map_of(object_of(predicted_s=perhaps(NUMBER), simulated_s=perhaps(NUMBER))),
    ),
    "Deployed": object_of(says=TEXT),
}
