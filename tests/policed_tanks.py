"""A flow of tanks, a net of four sites at different prices, and a policy's state for them: plain values."""

from headwater import Flow, Tumbling, agg, col, io
from headwater.deploy.policies.policy_state import PlanningInput, PolicyState
from headwater.deploy.policies.view import View
from headwater.flow.profile import Demand, Profile, StepDemand, StepProfile
from headwater.net.files import as_json
from headwater.net.table import net_from_table

MOVABLE = ("time", "sound", "means")
PRICES = {"barn": 0.1, "cloud": 1.0, "edge1": 0.25, "edge2": 0.5}


def tanks():
    flow = Flow("tanks")
    levels = flow.read("levels", io.Items([], {"tank": str, "height": float, "at": "time"})).event_time("time", "at")
    sound = levels.filter("sound", col.height > 0)
    sound.key_by("tank").window("means", Tumbling("30 s"), height=agg.mean("height")).write("archive", io.Discard())
    return flow


def net():
    box = {"cpu_ips": 1e9, "memory_bytes": 1e9, "access_bps": 1e8}
    zones = [{"name": name, "devices": [{"class": name}]} for name in PRICES]
    zones[0]["devices"][0]["sensors"] = ["levels"]
    far = [[0.0 if a == b else 0.01 + 0.02 * (b == "cloud" or a == "cloud") for b in PRICES] for a in PRICES]
    return net_from_table(
        {
            "name": "farm",
            "classes": {name: box | {"price_per_hour": price} for name, price in PRICES.items()},
            "wan": {"kind": "matrix", "latency_s": far},
            "zones": zones,
        },
        "farm",
    )


def profile(**given):
    shape = {"bytes_in": 32.0, "bytes_out": 32.0}
    steps = {name: StepProfile(time_s=1e-5, **shape) for name in ("levels", "time", "archive")}
    steps["sound"] = StepProfile(time_s=2e-5, selectivity={"out": 0.9}, **shape)
    steps["means"] = StepProfile(time_s=5e-5, selectivity={"out": 0.01}, state_bytes=100_000, **shape)
    scales = {"levels": 1.0, "time": 1.0, "sound": 1.0, "means": 0.9, "archive": 0.009}
    need = {name: StepDemand(scale, 10, 1.0, 0.001, 5e-5, 1e-4) for name, scale in scales.items()}
    return Profile("tanks", "edge1", steps, demand=Demand(1000.0, 0.01, 2e-4, need))


def policed(policy="min-cost", contract=None, **given):
    asked = PlanningInput(net=as_json(net()), profile=profile(), rates_hz=1000.0, measured_ips=1e9, **given)
    return PolicyState(name=policy, asked=asked, contract=contract, settle_s=5.0, rest_s=60.0)


def views(*here, **changed):
    seen = {name: View(name, here=name in here, price=price) for name, price in PRICES.items()}
    return seen | changed


def at(site, **others):
    return {"levels": "barn", "archive": "barn"} | dict.fromkeys(MOVABLE, site) | others


def decided(decider, now_s, seen, sites, windows=None, for_s=10):
    """Return the first decision within so many seconds, and when it came."""
    for second in range(int(for_s)):
        decision = decider.decide(now_s + second, seen, sites, windows or {})
        if decision is not None:
            return decision, now_s + second
    return None, now_s + for_s


def carried_out(decider, decision, sites):
    decider.policed.note(decision)
    return sites | {step: to for step, (_, to) in decision.moves.items()}
