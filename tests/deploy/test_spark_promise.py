"""What is promised of a part at a site that runs its parts on Spark: decided by contracts, ledgers and masters alone."""

import os

import pytest

from headwater.cli.sites import print_sites
from headwater.deploy.control.messages import Hello, Lane, PartState, Report, Resources
from headwater.deploy.coordinator.site import Site as KnownSite
from headwater.deploy.coordinator.state import Deployment
from headwater.deploy.cut import Cut
from headwater.deploy.part import Promise
from headwater.deploy.policies import policy_named
from headwater.deploy.policies.deciding import Decider
from headwater.deploy.policies.planning import Planner
from headwater.deploy.policies.view import View, view_of
from headwater.deploy.promise import promises_of
from headwater.deploy.site.promise_on_spark import ELSEWHERE, refusal_on_spark
from headwater.deploy.site.resources import Site
from headwater.errors import PlacementError
from headwater.flow.contract import Contract
from headwater.rate.grade import Grade
from headwater.rate.messages import Ask
from headwater.rate.supervisor import Supervisor
from headwater.rate.windows import ELSEWHERE as WORKS_ELSEWHERE
from headwater.rate.windows import Reading, cause_of
from policed_tanks import MOVABLE, at, decided, policed, profile, tanks, views

SECONDS = Contract(1000.0, 5.0)
FAR = {"pins": {"archive": "barn"}}
HELD = (Lane("a", "etl", 11, 0.6), Lane("b", "tanks", 12, 1.0))


class Ledgered(Site):
    """A site whose ledger is given."""

    def __init__(self, capacity, lanes=HELD):
        super().__init__()
        self._given = Resources(cores=capacity / 0.9, free_memory_bytes=0, capacity=capacity, lanes=list(lanes))

    def resources(self):
        return self._given


def asked(contract=SECONDS, cores=0.4, **given):
    return Promise(contract=contract, profile=profile(), cores=cores, **given)


def test_a_part_has_whole_cores_of_the_site_s_ledger_or_a_refusal_with_the_numbers():
    assert refusal_on_spark(Ledgered(2.6), "local[*]", asked()) == ""
    refused = refusal_on_spark(Ledgered(1.8), "local[*]", asked())
    assert "it wants 1.00 cores, and 0.20 are left; held by etl 0.60, tanks 1.00" in refused
    assert "1 where the engine would need 0.40" in refused
    assert refusal_on_spark(Ledgered(1.8), "local[*]", asked(), 12) == ""  # what the part before it has is for it
    assert "it wants 2.00 cores, and 1.20 are left" in refusal_on_spark(Ledgered(1.8), "local[*]", asked(cores=1.1), 12)
    assert refusal_on_spark(Ledgered(3.6, []), "local[2]", asked(cores=2.5)) == ""  # more than one lane could have


@pytest.mark.parametrize(
    ("contract", "why"),
    [
        (Contract(1000.0, 0.05), "works in micro-batches, and is promised 1 s or more"),
        (Contract(1000.0, 5.0, above="shed"), "what is above the rate is best effort there, and not 'shed'"),
    ],
)
def test_what_spark_cannot_keep_is_refused_whatever_the_ledger_has(contract, why):
    assert why in refusal_on_spark(Ledgered(64.0, []), "local[*]", asked(contract, best_effort=True))
    told = Deployment(
        id="t-1", name="tanks", flow="t.py", known=[], sites=at("cloud"), promises={"cloud": asked(contract)}
    )
    assert why in told.why_not_on_spark("cloud")  # before anything is sent there
    assert told.why_not_on_spark("barn") == ""
    told.promises["cloud"] = asked()
    assert told.why_not_on_spark("cloud") == ""


@pytest.mark.parametrize("master", ["spark://head:7077", "spark://127.0.0.1:7077", "yarn", "local-cluster[2,1,1024]"])
def test_of_a_cluster_nothing_is_promised_unless_it_is_asked_for_as_best_effort(master):
    refused = refusal_on_spark(Ledgered(64.0, []), master, asked())
    assert ELSEWHERE in refused
    assert "--best-effort runs it there all the same" in refused
    assert refusal_on_spark(Ledgered(0.0), master, asked(best_effort=True)) == ""


def test_what_works_on_a_cluster_holds_no_cores_and_is_in_the_ledger_for_its_windows(tmp_path):
    class Groups:
        """Would protect; a lane that reserved nothing is to be left as it is."""

        def put(self, *given):
            raise AssertionError(given)

        weigh = put

        def names(self):
            return []

        def remove(self, name):
            pass

        def sweep(self):
            pass

    supervisor = Supervisor(tmp_path, Grade("reserved", "for a test", groups=Groups()), cores=2)
    granted = supervisor.answer(Ask("tanks", SECONDS, 0.0, best_effort=True, lanes=0), os.getpid())
    assert (granted.cores, granted.grade) == (0.0, "none")
    assert supervisor.board().left == pytest.approx(1.8)
    assert [lane.flow for lane in supervisor.board().lanes] == ["tanks"]
    slow = Reading(used=0.3, waited=0.9, held=0.0, backlog=0.0)
    assert cause_of(SECONDS, 0.0, 100, slow) == WORKS_ELSEWHERE


# -- as policies see it ---------------------------------------------------------------------------------------------------


def on_spark(**how):
    """A cloud that runs its parts on Spark, and costs next to nothing."""
    return {"barn": View("barn", here=True, price=0.1, why="it is a gate post")} | {
        "cloud": View("cloud", here=True, price=0.01, kind="spark", **{"free": 1.0, **how})
    }


def places(contract, best_effort=False, **how):
    planner = Planner(
        tanks(), policed(contract=contract, **FAR).asked, contract, policy_named("min-cost"), best_effort=best_effort
    )
    return {planner.anew(views("barn", "edge1", **on_spark(**how)))[step] for step in MOVABLE}


def test_the_cheapest_site_may_be_one_on_spark_if_it_can_keep_the_promise():
    assert places(SECONDS) == {"cloud"}
    assert places(Contract(1000.0)) == {"cloud"}
    assert places(Contract(1000.0, 0.05)) == {"edge1"}
    assert places(Contract(1000.0, 5.0, above="block")) == {"edge1"}
    assert places(SECONDS, free=0.0) == {"edge1"}
    assert places(SECONDS, reserves=False) == {"edge1"}
    assert places(SECONDS, best_effort=True, reserves=False) == {"cloud"}


def test_why_a_site_on_spark_does_not_take_the_flow_is_told():
    def told(contract, **how):
        planner = Planner(tanks(), policed(contract=contract, **FAR).asked, contract, policy_named("min-cost"))
        with pytest.raises(PlacementError) as refused:
            planner.anew(views("barn", **on_spark(**how)))
        return str(refused.value)

    assert "'cloud' runs its parts on Spark: it works in micro-batches, and is promised 1 s" in told(
        Contract(1000.0, 0.05)
    )
    assert f"'cloud' runs its parts on Spark, and {ELSEWHERE}" in told(SECONDS, reserves=False)
    assert "'cloud' has 0.00 whole cores to promise" in told(SECONDS, free=0.0)


def test_a_promised_flow_moves_to_spark_and_leaves_it_when_its_ledger_has_shrunk():
    state = policed(contract=SECONDS, whole=True, **FAR)
    decider = Decider(tanks(), state)
    seen = views("barn", "edge1", **on_spark())
    there, _ = decided(decider, 0.0, seen, at("edge1"))
    assert there.moves == dict.fromkeys(MOVABLE, ("edge1", "cloud"))
    seen["cloud"] = View("cloud", here=True, price=0.01, kind="spark", free=0.0, why="site 'cloud' promised too much")
    back, _ = decided(Decider(tanks(), state), 100.0, seen, at("cloud"))
    assert back.forced
    assert back.moves == dict.fromkeys(MOVABLE, ("cloud", "edge1"))


def seen_of(capacity, lanes, pid=None, **how):
    resources = Resources(cores=4.0, free_memory_bytes=0, capacity=capacity, lanes=list(lanes), **how)
    report = Report([], 0.5, 0.0, 0, 0, resources)
    return view_of("cloud", report, here=True, pid=pid, price=1.0, idlest=0.0, kind="spark")


def test_only_whole_cores_of_a_site_on_spark_count():
    assert seen_of(3.6, HELD).free == 2.0  # of 2.0 that are left
    assert seen_of(3.5, HELD).free == 1.0
    assert seen_of(1.8, HELD, pid=12).free == 1.0  # its own
    assert seen_of(1.8, HELD).free == 0.0
    assert seen_of(14.4, HELD, reserves=False).free == 14.4  # a cluster's, as the site tells with --cores


def test_status_tells_why_windows_of_a_part_broke(capsys):
    hello = Hello("cloud", "1", 1, None, 2.0, 0, "spark")
    deployed = Deployment(
        id="t-1", name="tanks", flow="t.py", known=["cloud"], sites=dict.fromkeys(at("cloud"), "cloud")
    )
    lane = Lane("b", "tanks", 12, 1.0, kept=40, broken=3, causes={"steps dearer than reserved for": 3})
    resources = Resources(cores=2.0, free_memory_bytes=0, capacity=1.8, lanes=[lane])
    site = KnownSite(hello, "127.0.0.1", parts={"t-1": PartState("t-1", "running", pid=12)})
    site.report = Report([], 0.5, 0.0, 10**9, 0, resources)
    told = site.describe(deployed)
    assert told["promise"] == {"cores": 1.0, "kept": 40, "broken": 3, "causes": {"steps dearer than reserved for": 3}}
    flow = {"name": "tanks", "phase": "running", "id": "t-1"}
    print_sites({"flow": flow, "sites": [{"name": "cloud", "steps": [], **told}]})
    assert "windows at 'cloud': 3 broken: steps dearer than reserved for" in " ".join(capsys.readouterr().out.split())


def test_the_share_of_a_part_is_promised_on_spark_as_on_the_engine():
    state = policed(contract=SECONDS, **FAR)
    found = promises_of(Cut(tanks(), at("cloud")), state)
    assert found["cloud"].contract.latency_s == 5.0
    assert refusal_on_spark(Ledgered(1.0, []), "local[*]", found["cloud"]) == ""
    assert refusal_on_spark(Ledgered(0.9, []), "local[*]", found["cloud"]) != ""
