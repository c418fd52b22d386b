"""The coordinator and its agents as they decide, over a network that loses words, with crashes of all: by seeds."""

import random
from contextlib import suppress

import msgspec
import pytest

from headwater import __version__
from headwater.deploy.control.messages import (
    PROTOCOL,
    Fetch,
    Fetched,
    Forget,
    Have,
    Hello,
    Install,
    PartState,
    Piece,
    Prepare,
    Report,
    Send,
    Sent,
    Took,
    Unfit,
    Want,
    packed,
    unpacked,
)
from headwater.deploy.coordinator.description import describe
from headwater.deploy.coordinator.events import (
    Begin,
    Cut,
    Deploy,
    Drop,
    Hand,
    Heard,
    Joined,
    Keep,
    Left,
    Ready,
    Recut,
    Revoke,
    Say,
    Stop,
    Undo,
)
from headwater.deploy.coordinator.machine import Coordinator
from headwater.deploy.coordinator.state import CoordinatorState, Deployment, Move
from headwater.deploy.part import SealedPart
from headwater.deploy.site.agent import (
    Agent,
    HandOver,
    KeepPiece,
    Locate,
    Remove,
    SendAhead,
    SendMore,
    Start,
    Unpack,
    Warm,
)
from headwater.deploy.site.agent import Stop as StopPart
from headwater.errors import RunError
from properties import share_of

SEALED = SealedPart(b"", b"", b"", {})


def deployed(**given):
    sites = {"levels": "barn", "means": "cloud", "archive": "office"}
    known = ["barn", "cloud", "office", "attic"]
    told = {"name": "tanks", "flow": "tanks.py", "known": known, "sites": sites, "streams": streams_of(sites)}
    return Deployment(id="tanks-1", **told, **given)


def streams_of(sites):
    pairs = [("levels", "means"), ("means", "archive")]
    return [(one, sites[one], sites[other]) for one, other in pairs if sites[one] != sites[other]]


def hello(name, *, version=__version__, host="127.0.0.1"):
    return Hello(name, version, PROTOCOL, host, 2.0, 2**30)


def report(*parts, heard=0, prepared=()):
    return Report(list(parts), 0.1, 0.0, 10**9, heard, prepared=list(prepared))


def test_nothing_is_started_before_every_site_has_its_part():
    machine = Coordinator(CoordinatorState())
    machine.handle(Deploy(deployed()))
    for name in ("barn", "cloud"):
        machine.handle(Joined(name, hello(name)))
        assert machine.handle(Heard(name, report())) == []  # it is not known yet who can be dialed
    machine.handle(Joined("office", hello("office")))
    commands = machine.handle(Heard("office", report()))
    assert [each.site for each in commands if isinstance(each, Hand)] == ["barn", "cloud", "office"]
    stopped = PartState("tanks-1", "stopped", port=4000)
    for name in ("barn", "cloud"):
        commands = machine.handle(Heard(name, report(stopped)))
        assert not any(isinstance(each, Say) and each.message.running for each in commands)
    *kept, barn, cloud, office = machine.handle(Heard("office", report(stopped)))
    assert kept == [Keep()]  # before anybody is told
    assert [each.message.running for each in (barn, cloud, office)] == [True, True, True]
    assert cloud.message.addresses == {"barn": ("127.0.0.1", 4000), "office": ("127.0.0.1", 4000)}


def test_a_site_that_comes_back_is_told_again_and_one_that_moved_its_port_is_told_of():
    machine = Coordinator(CoordinatorState(deployed=deployed(phase="running", listens=["barn", "cloud", "office"])))
    for name in ("barn", "cloud", "office"):
        machine.handle(Joined(name, hello(name)))
        machine.handle(Heard(name, report(PartState("tanks-1", "running", port=4000))))
    machine.handle(Left("cloud"))
    assert machine.missing() == ["cloud"]
    machine.handle(Joined("cloud", hello("cloud")))
    said = machine.handle(Heard("cloud", report(PartState("tanks-1", "running", port=4001))))
    assert {each.site: each.message.addresses.get("cloud") for each in said} == {
        "barn": ("127.0.0.1", 4001),
        "office": ("127.0.0.1", 4001),
        "cloud": None,
    }


@pytest.mark.parametrize(
    ("name", "said", "why"),
    [
        ("bran", hello("bran"), "the net of flow 'tanks' has no site 'bran'; did you mean 'barn'"),
        ("barn", hello("cloud"), "it calls itself 'cloud', and its certificate is for 'barn'"),
        ("barn", hello("barn", version="0.0.1"), "it runs Headwater 0.0.1 .* install the same at both"),
        ("cloud", hello("cloud"), "a site 'cloud' is here already, from 192.0.2.1"),
    ],
)
def test_who_does_not_belong_here_is_told_why(name, said, why):
    machine = Coordinator(CoordinatorState(deployed=deployed()))
    machine.handle(Joined("cloud", hello("cloud"), "192.0.2.1"))
    with pytest.raises(RunError, match=why):
        raise RunError(machine.why_not(name, said))
    assert machine.why_not("attic", hello("attic")) is None


def test_a_site_that_is_revoked_is_not_admitted_and_the_others_refuse_it_at_their_bridges():
    kept = CoordinatorState(deployed=deployed(phase="running", listens=["barn", "cloud", "office"]))
    machine = Coordinator(kept, {"barn": "2A"})
    assert "is revoked" in machine.why_not("barn", hello("barn"), "1")
    assert machine.why_not("barn", hello("barn"), "2A") is None
    agents = {name: Agent({"tanks-1": True}) for name in ("cloud", "office")}
    for revoked in ({"barn": "2A"}, {"barn": ""}):
        said = machine.handle(Revoke(revoked))
        if not machine.sites:
            for name in agents:
                machine.handle(Joined(name, hello(name)))
                said += machine.handle(Heard(name, report(PartState("tanks-1", "running", port=4000))))
        told = {each.site: deed for each in said for deed in agents[each.site].told(each.message)}
        assert {name: deed.revoked for name, deed in told.items()} == dict.fromkeys(agents, revoked)
    assert machine.handle(Revoke(revoked)) == []  # the same once more
    assert "is revoked" in machine.why_not("barn", hello("barn"), "2A")


def test_sites_of_which_none_can_be_dialed_are_told_before_anything_is_handed_out():
    machine = Coordinator(CoordinatorState())
    machine.handle(Deploy(deployed(joined=[("barn", "cloud"), ("cloud", "office")])))
    commands = []
    for name in ("barn", "cloud", "office"):
        machine.handle(Joined(name, hello(name, host="192.0.2.9" if name == "office" else None)))
        commands = machine.handle(Heard(name, report()))
    assert not any(isinstance(each, Hand) for each in commands)
    assert "between sites 'barn' and 'cloud', and neither can be dialed" in machine.trouble()


def test_a_part_that_a_site_does_not_take_is_told_and_taken_back():
    machine = Coordinator(CoordinatorState())
    machine.handle(Deploy(deployed()))
    for name in ("barn", "cloud", "office"):
        machine.handle(Joined(name, hello(name)))
        machine.handle(Heard(name, report()))
    machine.handle(Heard("barn", report(PartState("tanks-1", "stopped"))))
    machine.handle(Heard("cloud", Unfit("tanks-1", "its disk is full")))
    assert machine.trouble() == "site 'cloud' does not take its part: its disk is full"
    assert [(each.site, each.message.ids) for each in machine.handle(Drop()) if isinstance(each, Say)] == [
        ("barn", ["tanks-1"])
    ]


def test_one_flow_at_a_time_and_none_is_dropped_while_it_runs():
    machine = Coordinator(CoordinatorState(deployed=deployed(phase="running")))
    with pytest.raises(RunError, match="flow 'tanks' is deployed with this state already"):
        machine.handle(Deploy(deployed()))
    with pytest.raises(RunError, match="flow 'tanks' is running; stop it first"):
        machine.handle(Drop())


class World:
    """A coordinator and three agents in one thread; words are lost, and anybody may crash between any two of them."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.disk = msgspec.json.encode(CoordinatorState())
        self.parts = {name: {} for name in ("barn", "cloud", "office")}  # what each agent has on disk
        self.warm = {name: {} for name in self.parts}  # the processes that each agent has made ready
        self.ahead = {name: set() for name in self.parts}  # state that has gone ahead to it, on disk
        self.went_ahead = 0
        self.announced = {name: set() for name in self.parts}  # parts that it was made ready for, on disk
        self.goes = {name: [] for name in self.parts}  # what each agent sends ahead, one after the other
        self.heavy = {}  # by agent: the last hand-over that was too much for one message
        self.went_behind = 0
        self.heard, self.cuts = {}, []
        self.routes = {name: {} for name in self.parts}  # what each part goes by, which is on disk too
        self.placed = {"tanks-1": deployed().sites}
        self.ends = False  # whether parts that run may come to their end
        self.over = {name: set() for name in self.parts}  # parts that have, since their agent was told to run them
        self.start()
        self.agents = {name: Agent({}) for name in self.parts}
        self.lines = {}  # site → words on their way to it, while it is connected

    def start(self):
        self.machine = Coordinator(msgspec.json.decode(self.disk, type=CoordinatorState))

    def handle(self, event):
        for command in self.machine.handle(event):
            if isinstance(command, Keep):
                self.disk = msgspec.json.encode(self.machine.kept)
            elif isinstance(command, Ready):
                self.say(command.site, Prepare(command.deployed.id, SEALED))
            elif isinstance(command, Hand):
                sealed = None if command.prepared else SEALED
                self.say(command.site, Install(command.deployed.id, sealed, dict(command.checkpoint), command.after))
            elif isinstance(command, Cut):
                self.cuts.append(self.cut_of(command))
            else:
                self.say(command.site, command.message)

    def cut_of(self, command):
        """Have what has gone ahead be asked for where its step will be."""
        sites, made = command.deployed.moving.sites, {}
        for name in [name for files in command.taken.values() for name in files]:
            made.setdefault(sites[name.split("/")[1]], {})[name] = b""
        return Recut(command.deployed.moving.id, made)

    def say(self, site, message):
        if site in self.lines:
            self.lines[site].append(unpacked(packed(message)))

    def connect(self, site):
        if site not in self.lines:
            self.lines[site] = []
            self.heard[site] = 0
            self.handle(Joined(site, hello(site)))

    def cut(self, site):
        if self.lines.pop(site, None) is not None:
            self.handle(Left(site))

    def report(self, site):
        if site in self.lines:
            told = [
                PartState(id, self.phase(site, id), port=1, routed=getattr(self.routes[site].get(id), "name", ""))
                for id in self.parts[site]
            ]
            for id, phase in self.warm[site].items():
                self.warm[site][id] = self.chance.choice(["warm", "warm", "cold"]) if phase == "warming" else phase
            ready = [PartState(id, phase, port=1) for id, phase in self.warm[site].items()]
            self.handle(Heard(site, report(*told, heard=self.heard[site], prepared=ready)))

    def phase(self, site, id):
        if not self.parts[site][id]:
            return "stopped"
        if self.ends and self.chance.random() < 0.1:
            self.over[site].add(id)
        return "ended" if id in self.over[site] else "running"

    def deliver(self, site):
        if self.lines.get(site):
            message = self.lines[site].pop(0)
            for deed in self.agents[site].told(message):
                self.do(site, deed)
            self.heard[site] = getattr(message, "word", self.heard[site])

    def do(self, site, deed):
        match deed:
            case Warm(id):
                self.warm[site][id] = "warming"
                self.announced[site] = {id}
                self.agents[site].prepares(id)
            case SendAhead(id, move, steps):
                self.begin_to_send(
                    site, id, move, {f"{move}/{step}": step for step in steps if self.chance.random() < 0.8}
                )
            case SendMore():
                self.send_more(site)
            case KeepPiece(piece):
                if piece.is_last:
                    self.ahead[site].add(piece.key)
                    self.hear(site, Have(piece.move, piece.key))
                self.hear(site, Took(piece.move, piece.step, piece.key, piece.at))
            case Unpack(id, sealed, checkpoint):
                assert sealed is not None or id in self.warm[site], "installed what is not there"
                assert set(checkpoint) <= self.ahead[site], "state is said to be there that is not"
                self.went_ahead += len(checkpoint)
                self.warm[site].pop(id, None)
                self.announced[site].discard(id)
                self.parts[site][id] = False
                self.agents[site].has(id)
            case HandOver(id, move, known, steps):
                assert not self.parts[site][id], "taken while it runs"
                anew = {f"{move}/{step}/anew": step for step in steps if f"{move}/{step}/anew" not in known}
                if anew and self.heavy.get(site) != deed and self.chance.random() < 0.3:
                    self.heavy[site] = deed
                    self.begin_to_send(site, id, move, anew)
                else:
                    self.went_behind += sum(key.endswith("/anew") for key in known)
                    self.hear(site, Fetched(id, dict.fromkeys(known, b""), move))
            case Start(id):
                deployed = self.machine.kept.deployed
                if id == deployed.id_at(site):
                    has = [deployed.id_at(each) in self.parts[each] for each in deployed.needed]
                    assert all(has), "started before all had their part"
                self.parts[site][id] = True
                self.over[site].discard(id)
                self.check_forms()
                self.check_kept()
            case StopPart(id):
                self.parts[site][id] = False
            case Remove(id):
                self.warm[site].pop(id, None)
                self.announced[site].discard(id)
                self.ahead[site] = {key for key in self.ahead[site] if not key.startswith(f"{id}/")}
                assert not self.parts[site].pop(id, False) or self.machine.kept.forgotten
            case Locate(id, routes=routes):
                self.routes[site][id] = routes

    def hear(self, site, message):
        if site in self.lines:
            self.handle(Heard(site, unpacked(packed(message))))

    def begin_to_send(self, site, id, move, keys):
        goes = [Piece(move, step, key, 2, 0, at, b"s") for key, step in keys.items() for at in range(2)]
        self.goes[site] = [*goes, Sent(id, move, keys)]
        self.send_more(site)

    def send_more(self, site):
        if self.goes[site]:
            self.hear(site, self.goes[site].pop(0))

    def at_work(self):
        found = [(site, id) for site, has in self.parts.items() for id, runs in has.items() if runs]
        return [(site, id) for site, id in found if id not in self.over[site]]

    def check_forms(self):
        """No step is at work twice, wherever."""
        steps = [step for site, id in self.at_work() for step, at in self.placed[id].items() if at == site]
        assert len(steps) == len(set(steps)), "runs in two forms"

    def check_kept(self):
        """Who sends a stream keeps it for whoever is at work and reads it."""
        running, now = dict(self.at_work()), self.machine.kept.deployed.id
        for site in [site for site, id in running.items() if id == now]:
            for stream, origin, target in streams_of(self.placed[now]):
                if target == site and origin in running:
                    routes = self.routes[origin][running[origin]]
                    kept_for = routes.targets.get(stream, []) + routes.soon.get(stream, [])
                    assert target in kept_for, "what it reads is not kept for it"

    def crash_agent(self, site):
        self.cut(site)
        self.goes[site] = []
        self.heavy.pop(site, None)
        self.agents[site] = Agent(self.parts[site], self.announced[site])
        self.warm[site] = {}  # its processes end with it
        self.over[site] = set()  # a part that was not stopped is started, and goes on from its last checkpoint

    def cut_anew(self, site):
        if self.cuts:
            self.handle(self.cuts.pop(0))

    def crash_coordinator(self):
        self.lines.clear()
        self.cuts.clear()
        self.start()

    def step(self, *, faults):
        site = self.chance.choice(list(self.parts))
        acts = [self.connect, self.report, self.report, self.deliver, self.deliver, self.cut_anew]
        if faults and self.chance.random() < 0.2:
            acts = [self.cut, self.crash_agent, lambda site: self.crash_coordinator()]
        self.chance.choice(acts)(site)

    def running(self):
        """Return the form in which all sites that should run one do, each its own part and no other."""
        deployed = self.machine.kept.deployed
        found = {site: [id for id, runs in self.parts[site].items() if runs] for site in deployed.needed}
        return deployed.id if all(ids == [deployed.id_at(site)] for site, ids in found.items()) else None

    def is_settled(self):
        """Say whether nothing is being moved, and all sites that should run something do."""
        deployed = self.machine.kept.deployed
        return deployed.moving is None and self.running() == deployed.id

    def settle(self, met):
        for _ in range(3000):
            if met():
                return True
            self.step(faults=False)
        return False


@pytest.mark.parametrize("seed", range(share_of(40)))
def test_whatever_crashes_all_run_in_the_end_and_all_stop_in_the_end(seed):
    world = World(seed)
    world.handle(Deploy(deployed()))
    for _ in range(200):
        world.step(faults=True)
    assert world.settle(lambda: all(has == {"tanks-1": True} for has in world.parts.values()))
    world.handle(Stop())
    for _ in range(100):
        world.step(faults=True)
    assert world.settle(lambda: world.machine.kept.deployed.phase == "stopped")
    assert all(has == {"tanks-1": False} for has in world.parts.values())
    world.handle(Drop())
    for _ in range(100):
        world.step(faults=True)
    assert world.settle(lambda: not any(world.parts.values()))


def move(number, world):
    """Return a move of one step, through which the parts of other sites go on, most often."""
    before = world.machine.kept.deployed.sites
    sites = {"levels": "barn", "means": world.chance.choice(["barn", "cloud", "office"]), "archive": "office"}
    steps = [{at: {step for step in placed if placed[step] == at} for at in world.parts} for placed in (before, sites)]
    on = [at for at in world.parts if steps[0][at] and steps[0][at] == steps[1][at]]
    world.placed[f"tanks-{number}"] = sites
    told = {"sites": sites, "joined": [], "listens": [], "streams": streams_of(sites)}
    return Move(id=f"tanks-{number}", **told, go_on=on if world.chance.random() < 0.8 else [])


@pytest.mark.parametrize("seed", range(share_of(60)))
def test_whatever_crashes_in_a_move_the_flow_runs_in_one_form_alone(seed):
    world = World(seed)
    world.handle(Deploy(deployed()))
    assert world.settle(lambda: world.running() == "tanks-1")
    for number in range(2, 6):
        with suppress(RunError):  # a site is away, or the last move is not over
            world.handle(Begin(move(number, world)))
        for _ in range(world.chance.randrange(120)):
            world.step(faults=True)
        if world.chance.random() < 0.3 and world.machine.kept.deployed.moving is not None:
            world.handle(Undo(world.machine.kept.deployed.moving.id, "it took too long"))
    assert world.settle(world.is_settled)
    final = world.machine.kept.deployed
    assert world.settle(lambda: all(set(has) <= {final.id_at(site)} for site, has in world.parts.items()))
    assert {site for site, has in world.parts.items() if has} == set(final.needed)
    assert world.settle(lambda: not any(world.warm.values()))


@pytest.mark.parametrize("seed", range(share_of(40)))
def test_a_flow_that_has_ended_is_what_was_deployed_and_stays_so_whatever_was_moved(seed):
    world = World(seed)
    world.handle(Deploy(deployed()))
    assert world.settle(lambda: world.running() == "tanks-1")
    for number in range(2, 5):
        world.ends = number > 2  # parts come to their end from here on
        with suppress(RunError):  # a site is away, the last move is not over, or all has ended
            world.handle(Begin(move(number, world)))
        for _ in range(world.chance.randrange(120)):
            world.step(faults=True)
    world.ends = True
    assert world.settle(lambda: world.machine.kept.deployed.phase == "ended")
    assert world.settle(lambda: not world.at_work())
    for _ in range(200):
        world.step(faults=True)
        assert world.machine.kept.deployed.phase == "ended"
    assert world.machine.kept.deployed.same_as(deployed())
    assert world.settle(lambda: not world.at_work())


def test_a_flow_is_known_by_the_plan_that_was_deployed_and_by_where_its_steps_are_now():
    then = deployed(moving=Move(id="tanks-2", sites=deployed().sites | {"means": "barn"}, joined=[], listens=[])).then
    then.moving = Move(id="tanks-3", sites=deployed().sites | {"means": "office"}, joined=[], listens=[])
    last = msgspec.json.decode(msgspec.json.encode(then.then), type=Deployment)
    for site, is_same in (("cloud", True), ("office", True), ("barn", False)):
        asked = deployed()
        asked.sites["means"] = site
        assert last.same_as(asked) is is_same


def test_state_goes_ahead_in_most_moves_of_such_a_world():
    ahead, behind = [], 0
    for seed in range(10):
        world = World(seed)
        world.handle(Deploy(deployed()))
        assert world.settle(lambda world=world: world.running() == "tanks-1" and len(world.lines) == 3)
        world.placed["tanks-2"] = sites = deployed().sites | {"means": "barn"}
        told = {"sites": sites, "joined": [], "listens": [], "streams": streams_of(sites)}
        world.handle(Begin(Move(id="tanks-2", **told)))
        assert world.settle(lambda world=world: world.running() == "tanks-2")
        ahead.append(world.went_ahead)
        behind += world.went_behind
    assert sum(ahead) > 10
    assert behind  # by pieces too, of parts that had saved all anew when they stopped


def test_a_part_that_a_site_does_not_take_ends_the_move_and_the_flow_goes_on():
    world = World(0)
    world.handle(Deploy(deployed()))
    assert world.settle(lambda: world.running() == "tanks-1")
    assert world.settle(lambda: set(world.lines) == set(world.parts))
    world.handle(Begin(move(2, world)))
    assert world.settle(lambda: world.machine.kept.deployed.moving.cut)
    world.handle(Heard("barn", Unfit("tanks-2", "its disk is full")))
    assert world.machine.undone == "site 'barn': its disk is full"
    assert world.settle(lambda: world.running() == "tanks-1")


def test_a_part_that_a_site_does_not_prepare_ends_the_move_before_anything_stops():
    machine = at_three_sites()
    sites = {"levels": "barn", "means": "barn", "archive": "office"}
    commands = machine.handle(Begin(Move(id="tanks-2", sites=sites, joined=[], listens=[])))
    assert [(each.site, each.after) for each in commands if isinstance(each, Ready)] == [
        ("barn", "tanks-1"),
        ("office", "tanks-1"),
    ]
    commands = machine.handle(Heard("barn", Unfit("tanks-2", "no cores are left")))
    assert (machine.undone, machine.refused_by) == ("site 'barn': no cores are left", "barn")
    assert False not in wants(commands)
    assert machine.kept.deployed.moving is None


def test_a_move_needs_all_its_sites():
    machine = Coordinator(CoordinatorState(deployed=deployed(phase="running")))
    with pytest.raises(RunError, match="sites 'barn', 'cloud', 'office' are not here"):
        machine.handle(Begin(Move(id="tanks-2", sites=deployed().sites, joined=[], listens=[])))


def at_three_sites(*, running="tanks-1"):
    """Return a coordinator whose flow runs at three sites, all of which have reported."""
    machine = Coordinator(CoordinatorState(deployed=deployed(phase="running", listens=["barn", "cloud", "office"])))
    for name in ("barn", "cloud", "office"):
        machine.handle(Joined(name, hello(name)))
        machine.handle(Heard(name, report(PartState(running, "running", port=4000))))
    return machine


def wants(commands):
    return [each.message.running for each in commands if isinstance(each, Say) and hasattr(each.message, "running")]


def test_the_old_parts_run_until_every_new_one_has_a_process_that_waits():
    machine = at_three_sites()
    sites = {"levels": "barn", "means": "barn", "archive": "office"}
    commands = machine.handle(Begin(Move(id="tanks-2", sites=sites, joined=[], listens=[])))
    assert [each.site for each in commands if isinstance(each, Ready)] == ["barn", "office"]
    assert wants(commands) == []
    running = PartState("tanks-1", "running", port=4000)
    warming, warm = PartState("tanks-2", "warming"), PartState("tanks-2", "warm", port=4001)
    assert wants(machine.handle(Heard("barn", report(running, heard=1, prepared=[warm])))) == []
    assert wants(machine.handle(Heard("office", report(running, heard=1, prepared=[warming])))) == []
    commands = machine.handle(Heard("office", report(running, heard=1, prepared=[warm])))
    assert [(each.site, each.message) for each in commands] == [
        ("barn", Send("tanks-1", "tanks-2", {"levels": "barn"})),
        ("cloud", Send("tanks-1", "tanks-2", {"means": "barn"})),
        ("office", Send("tanks-1", "tanks-2", {"archive": "office"})),
    ]
    *kept, barn, cloud, office = nothing_goes_ahead(machine, "tanks-2", "barn", "cloud", "office")
    assert kept == [Keep()]
    assert wants([barn, cloud, office]) == [False, False, False]


def nothing_goes_ahead(machine, move, *sites):
    """Have sites say that none of their state is large."""
    return [each for site in sites for each in machine.handle(Heard(site, Sent("tanks-1", move, {})))]


def test_large_state_goes_ahead_while_the_old_parts_run_and_what_is_there_is_not_asked_for_again():
    machine, other = at_three_sites(), "of another step"
    sites = {"levels": "barn", "means": "barn", "archive": "office"}
    machine.handle(Begin(Move(id="tanks-2", sites=sites, joined=[], listens=[])))
    running, warm = PartState("tanks-1", "running", port=4000), PartState("tanks-2", "warm", port=4001)
    for name in ("barn", "office"):
        machine.handle(Heard(name, report(running, prepared=[warm])))
    piece = Piece("tanks-2", "means", "k", 1, 0, 0, b"s")
    assert machine.handle(Heard("cloud", piece)) == [Say("barn", piece)]
    took = Took("tanks-2", "means", "k", 0)
    assert machine.handle(Heard("barn", took)) == [Say("cloud", took)]
    assert machine.handle(Heard("office", took)) == []  # where it does not go
    assert machine.handle(Heard("barn", Took("tanks-2", "none", "k", 0))) == []
    assert machine.handle(Heard("barn", Took("tanks-1", "means", "k", 0))) == []
    assert machine.handle(Heard("office", msgspec.structs.replace(piece, key=other))) == []  # which is not its own
    assert machine.handle(Heard("cloud", Sent("tanks-1", "tanks-2", {"k": "means"}))) == []
    assert nothing_goes_ahead(machine, "tanks-2", "barn", "office") == []
    machine.handle(Left("barn"))  # which has lost what it had, perhaps
    machine.handle(Joined("barn", hello("barn")))
    machine.handle(Heard("barn", report(running)))
    assert said(machine.handle(Heard("barn", report(running, prepared=[warm]))), Send).keys() == machine.sites.keys()
    assert machine.handle(Heard("cloud", Sent("tanks-1", "tanks-2", {"k": "means"}))) == []
    assert nothing_goes_ahead(machine, "tanks-2", "barn", "office") == []
    assert wants(machine.handle(Heard("barn", Have("tanks-2", "k")))) == [False, False, False]
    asked = said(machine.handle(Heard("cloud", report(running))), Fetch)
    assert {site: word.known for site, word in asked.items()} == {"barn": [], "cloud": ["k"], "office": []}


def test_state_does_not_go_ahead_anew_when_a_site_leaves_that_the_move_is_nothing_to():
    machine = at_three_sites()
    machine.handle(Joined("shed", hello("shed")))
    sites = {"levels": "barn", "means": "barn", "archive": "office"}
    machine.handle(Begin(Move(id="tanks-2", sites=sites, joined=[], listens=[], go_on=["office"])))
    running, warm = PartState("tanks-1", "running", port=4000), PartState("tanks-2", "warm", port=4001)
    began = machine.handle(Heard("barn", report(running, prepared=[warm])))
    assert said(began, Send).keys() == {"barn", "cloud"}
    piece = Piece("tanks-2", "means", "k", 1, 0, 0, b"s")
    machine.handle(Heard("cloud", piece))
    for name in ("shed", "office"):
        assert said(machine.handle(Left(name)), Send) == {}
        machine.handle(Joined(name, hello(name)))
        assert said(machine.handle(Heard(name, report(running))), Send) == {}
    machine.handle(Left("barn"))
    machine.handle(Joined("barn", hello("barn")))
    assert said(machine.handle(Heard("barn", report(running, prepared=[warm]))), Send).keys() == {"barn", "cloud"}


def said(commands, kind):
    """Return the words of a kind, by the sites that they are for."""
    return {each.site: each.message for each in commands if isinstance(each, Say) and isinstance(each.message, kind)}


def test_a_part_none_of_whose_steps_moves_runs_on_and_keeps_what_others_will_read_before_they_do():
    machine = at_three_sites()
    sites = {"levels": "barn", "means": "office", "archive": "office"}
    told = {"sites": sites, "joined": [], "listens": [], "streams": streams_of(sites), "go_on": ["barn"]}
    commands = machine.handle(Begin(Move(id="tanks-2", **told)))
    assert [each.site for each in commands if isinstance(each, Ready)] == ["office"]
    (said,) = (each for each in commands if isinstance(each, Say))
    assert (said.site, said.message.running) == ("barn", True)
    assert said.message.routes.targets == {"levels": ["cloud"]}
    assert said.message.routes.soon == {"levels": ["office"]}
    running, warm = PartState("tanks-1", "running", port=4000), PartState("tanks-2", "warm", port=4001)
    machine.handle(Heard("office", report(running, heard=1, prepared=[warm])))
    commands = nothing_goes_ahead(machine, "tanks-2", "cloud", "office")
    assert wants(commands) == []  # the barn does not keep anything for the office yet
    routed = msgspec.structs.replace(running, routed=said.message.routes.name)
    commands = machine.handle(Heard("barn", report(routed, heard=2)))
    assert {each.site: each.message.running for each in commands if isinstance(each, Say)} == {
        "cloud": False,
        "office": False,
    }
    for name in ("cloud", "office"):
        commands = machine.handle(Heard(name, Fetched("tanks-1", {}, "tanks-2")))
    assert [each.taken.keys() for each in commands if isinstance(each, Cut)] == [{"cloud", "office"}]
    machine.handle(Recut("tanks-2", {}))
    commands = machine.handle(Heard("office", report(PartState("tanks-2", "stopped", port=4001), heard=2)))
    wanted = {each.site: each.message for each in commands if isinstance(each, Say) and isinstance(each.message, Want)}
    assert {site: (word.id, word.running) for site, word in wanted.items()} == {
        "barn": ("tanks-1", True),
        "office": ("tanks-2", True),
    }
    assert wanted["barn"].routes.targets == {"levels": ["office"]}
    assert wanted["barn"].addresses == {"office": ("127.0.0.1", 4001)}
    commands = machine.handle(Heard("cloud", report(PartState("tanks-1", "stopped"))))
    assert [(each.site, each.message) for each in commands] == [("cloud", Forget(["tanks-1"]))]
    assert not any(each.site == "barn" for each in machine.handle(Heard("barn", report(routed, heard=3))))


def test_a_checkpoint_that_was_asked_for_by_a_move_before_is_of_no_use():
    machine = at_three_sites()
    for number in (2, 3):
        id = f"tanks-{number}"
        machine.handle(Begin(Move(id=id, sites=machine.kept.deployed.sites | {"means": "barn"}, joined=[], listens=[])))
        for name in ("barn", "office"):
            machine.handle(Heard(name, report(PartState("tanks-1", "running"), prepared=[PartState(id, "warm")])))
        nothing_goes_ahead(machine, id, "barn", "cloud", "office")
        if number == 2:
            machine.handle(Undo("tanks-2", "it took too long"))
    stopped = PartState("tanks-1", "stopped")
    for move in ("tanks-2", "tanks-3"):
        commands = []
        for name in ("barn", "cloud", "office"):
            heard = machine.sites[name].words
            commands += machine.handle(Heard(name, Fetched("tanks-1", {"of": move.encode()}, move)))
            commands += machine.handle(Heard(name, report(stopped, heard=heard)))
        cuts = [each.taken for each in commands if isinstance(each, Cut)]
        assert cuts == (
            [] if move == "tanks-2" else [{name: {"of": b"tanks-3"} for name in ("barn", "cloud", "office")}]
        )


def test_those_who_send_are_told_who_is_through():
    machine = at_three_sites()
    commands = machine.handle(Heard("office", report(PartState("tanks-1", "ended"))))
    told = {each.site: (each.message.running, each.message.ended) for each in commands if isinstance(each, Say)}
    assert told == {"barn": (True, ["office"]), "cloud": (True, ["office"]), "office": (False, ["office"])}


def test_a_clock_that_is_off_by_an_hour_is_told():
    machine = at_three_sites()
    machine.handle(Heard("cloud", report(PartState("tanks-1", "running")), clock_s=3600.0))
    whys = {site["name"]: site["why"] for site in describe(machine.kept.deployed, machine.sites)["sites"]}
    assert whys == {"barn": "", "cloud": "its clock is off by -3,600 s", "office": ""}


def test_a_disk_that_is_full_is_told():
    machine = at_three_sites()
    full = msgspec.structs.replace(report(PartState("tanks-1", "running")), free_bytes=4096)
    machine.handle(Heard("cloud", full))
    whys = {site["name"]: site["why"] for site in describe(machine.kept.deployed, machine.sites)["sites"]}
    told = "its disk is full: less than 50 MB are left, and records wait for room"
    assert whys == {"barn": "", "cloud": told, "office": ""}


def test_a_part_that_spark_cannot_run_is_refused_where_spark_runs_parts():
    why = {"means": "step 'means' closes its windows by a machine's clock"}
    machine = Coordinator(CoordinatorState())
    machine.handle(Deploy(deployed(engine_only=why)))
    for name in ("barn", "cloud", "office"):
        machine.handle(
            Joined(name, msgspec.structs.replace(hello(name), kind="spark" if name == "cloud" else "engine"))
        )
        commands = machine.handle(Heard(name, report()))
    assert (
        machine.trouble()
        == "site 'cloud' runs its parts on Spark: step 'means' closes its windows by a machine's clock"
    )
    assert not any(isinstance(each, Hand) for each in commands)


def test_a_move_to_where_spark_runs_parts_is_refused_for_what_it_cannot_run():
    machine = at_three_sites()
    machine.kept.deployed.engine_only = {"levels": "source 'levels' has 2 instances"}
    machine.sites["cloud"].hello = msgspec.structs.replace(hello("cloud"), kind="spark")
    sites = {"levels": "cloud", "means": "barn", "archive": "office"}
    with pytest.raises(RunError, match="site 'cloud' runs its parts on Spark: source 'levels' has 2 instances"):
        machine.handle(Begin(Move(id="tanks-2", sites=sites, joined=[], listens=[])))
    assert machine.kept.deployed.moving is None
