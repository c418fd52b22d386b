"""What a coordinator does about what sites say and people ask for: events in, commands out; no socket, file or clock.

A deployment is handed to all its sites first. Once each has its part, that is kept, and all are told to run; from then on a
site that comes back is told the same again. Whatever is lost on the way, each is told until it reports what was wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headwater import __version__
from headwater.deploy.bridge_ends import dials
from headwater.deploy.control.messages import (
    PROTOCOL,
    Fetch,
    Fetched,
    Forget,
    Have,
    Hello,
    Message,
    PartState,
    Piece,
    Report,
    Sent,
    Took,
    Unfit,
    Want,
)
from headwater.deploy.coordinator.ahead import Ahead, steps_then
from headwater.deploy.coordinator.events import (
    Begin,
    Command,
    Cut,
    Deploy,
    Drop,
    Event,
    Hand,
    Heard,
    Joined,
    Keep,
    Left,
    Ready,
    Recut,
    Resume,
    Revoke,
    Say,
    Stop,
    Undo,
)
from headwater.deploy.coordinator.site import Site
from headwater.deploy.coordinator.state import CoordinatorState, Deployment, Move
from headwater.deploy.revoked import Revoked, refuses
from headwater.errors import RunError, listed, suggestion

_OVER = ("stopped", "ended")  #: phases of a part that nothing is at work for


class Coordinator:
    """Decides; `kept` is to be on disk whenever `Keep` says so."""

    def __init__(self, kept: CoordinatorState, revoked: Revoked | None = None) -> None:
        self.kept, self.revoked = kept, revoked or {}
        self.sites: dict[str, Site] = {}
        self.undone = ""  #: why the last move came to nothing
        self.refused_by = ""  #: the site that did not take its part of the last move
        self._ahead = Ahead()  #: state that goes before them
        self._taken: dict[str, Mapping[str, bytes]] = {}  #: checkpoints of the old parts, during a move
        self._is_cutting = False
        self._checkpoints: Mapping[str, Mapping[str, bytes]] | None = None  #: of the new parts

    def why_not(self, name: str, hello: Hello, serial: str = "") -> str | None:
        """Say why a site that calls is not admitted; None if it is. `name` and `serial` are those of its certificate."""
        if refuses(self.revoked, name, serial):
            return (
                "its certificate is revoked; 'headwater site token' makes a new token for it where the coordinator is, "
                "which 'headwater site --token' takes"
            )
        if hello.name != name:
            return f"it calls itself '{hello.name}', and its certificate is for '{name}'"
        if hello.protocol != PROTOCOL or hello.version != __version__:
            return (
                f"it runs Headwater {hello.version} (protocol {hello.protocol}), and the coordinator {__version__} "
                f"(protocol {PROTOCOL}); install the same at both"
            )
        deployed = self.kept.deployed
        if deployed is not None and name not in deployed.known:
            slip = suggestion(name, deployed.known) or f"; its sites are {listed(deployed.known)}"
            return f"the net of flow '{deployed.name}' has no site '{name}'{slip}"
        there = self.sites.get(name)
        if there is not None and there.here:
            return f"a site '{name}' is here already, from {there.address}; does another machine have the same token?"
        return None

    def handle(self, event: Event) -> list[Command]:
        """Take note of something, and return what is to be done about it, in order."""
        commands: list[Command] = []
        match event:
            case Joined(name, hello, address):
                self.sites[name] = Site(hello, address)
            case Left(name):
                if name in self.sites:
                    self.sites[name].here = False
                if self._is_moved(name):
                    for sender in self._ahead.senders & self.sites.keys():
                        self.sites[sender].asked_move = ""
                    self._ahead = Ahead()  # what it had, or was to have, is asked for again
            case Heard(name, Piece() | Sent() | Have() | Took() as message):
                if self._moves(message.move) and (move := self._flow.moving) is not None:
                    commands += self._ahead.hear(name, message, self._flow, move)
            case Heard(name, message, clock_s):
                self._hear(self.sites[name], message, clock_s)
            case Deploy(deployed):
                self._deploy(deployed)
                commands.append(Keep())
            case Stop():
                if self._flow.moving is not None:
                    self._end_move(forget=self._flow.moving.id)
                    self.undone = "the flow was stopped"
                if self._flow.phase in ("installing", "running"):
                    self._flow.phase = "stopping"
                    commands.append(Keep())
            case Resume():
                if self._flow.phase in ("stopping", "stopped"):
                    self._flow.phase = "installing"  # a site may have lost its part meanwhile
                    commands.append(Keep())
            case Drop():
                self._drop()
                commands.append(Keep())
            case Begin(move):
                self._begin(move)
                commands.append(Keep())
            case Recut(id, checkpoints):
                if self._moves(id):
                    self._checkpoints = checkpoints
            case Revoke(revoked):
                self.revoked = revoked
            case Undo(id, why):
                if self._moves(id):
                    self._end_move(forget=id)
                    self.undone = why
                    commands.append(Keep())
        return [*commands, *self._decide()]

    @property
    def _flow(self) -> Deployment:
        if self.kept.deployed is None:
            raise RunError("nothing is deployed")
        return self.kept.deployed

    def _hear(self, site: Site, message: Message, clock_s: float) -> None:
        match message:
            case Report(parts):
                site.report, site.parts = message, {part.id: part for part in parts}
                site.prepared = {part.id: part for part in message.prepared}
                site.skew_s = message.clock_s - clock_s
                self._count(site, message)
            case Fetched(_, files, move):
                if self._moves(move):
                    self._taken[site.hello.name] = files
            case Unfit(id, why):
                deployed = self.kept.deployed
                if deployed is not None and (id == deployed.id_at(site.hello.name) or self._moves(id)):
                    site.unfit = why

    def _count(self, site: Site, report: Report) -> None:
        deployed = self.kept.deployed
        id = None if deployed is None else deployed.id_at(site.hello.name)
        part = next((each for each in report.parts if each.id == id), None)
        if part is not None:
            site.traffic.note(part.id, report.clock_s, part.sinks)
            site.reading.note(part.id, report.clock_s, part.taken)
            site.lately.note(report.clock_s, part)

    def _deploy(self, deployed: Deployment) -> None:
        if self.kept.deployed is not None:
            raise RunError(
                f"flow '{self.kept.deployed.name}' is deployed with this state already; headwater stop --forget ends it"
            )
        self.kept.deployed = deployed
        for site in self.sites.values():
            site.handed_part = site.unfit = ""

    def _drop(self) -> None:
        if self._flow.phase not in (*_OVER, "installing"):
            raise RunError(f"flow '{self._flow.name}' is {self._flow.phase}; stop it first")
        self._forget_parts(self._flow, self._flow.needed)
        self.kept.deployed = None

    # -- what should be ---------------------------------------------------------------------------------------------------

    def _decide(self) -> list[Command]:
        commands = self._forget()
        deployed = self.kept.deployed
        if deployed is None:
            return commands
        if deployed.moving is not None:
            commands += self._move(deployed, deployed.moving)
            deployed = self._flow
        elif deployed.phase == "installing":
            commands += self._install(deployed)
        if deployed.moving is None and deployed.phase in ("running", "stopping"):
            commands += self._note_ends(deployed)
        return commands + self._tell(deployed)

    def _note_ends(self, deployed: Deployment) -> list[Command]:
        """Take note of parts that are through, each for good, and of the end of all."""
        before = list(deployed.ended), deployed.phase
        states = {name: self._state(deployed, name) for name in deployed.needed}
        for name, state in states.items():
            if state is not None and state.phase == "ended" and name not in deployed.ended:
                deployed.ended.append(name)
        if set(deployed.ended) == set(states):
            deployed.phase = "ended"
        elif deployed.phase == "stopping" and self._have_stopped(deployed):
            deployed.phase = "stopped"
        return [] if before == (deployed.ended, deployed.phase) else [Keep()]

    def _have_stopped(self, deployed: Deployment) -> bool:
        """Say whether nothing is at work at any site, and nobody is about to begin."""
        for name in deployed.needed:
            site, state = self.sites.get(name), self._state(deployed, name)
            if site is None or not site.is_up_to_date or state is None or state.phase not in _OVER:
                return False
        return True

    def _forget_parts(self, deployed: Deployment, sites: Iterable[str]) -> None:
        """Have the parts of some sites removed wherever they are not, or no longer, what should run."""
        new = {deployed.id_at(name) for name in sites} - set(self.kept.forgotten)
        self.kept.forgotten += sorted(new)

    def _forget(self) -> list[Command]:
        commands: list[Command] = []
        deployed = self.kept.deployed
        for name, site in self.sites.items():
            has = {*(site.parts or {}), *site.prepared} if site.here else set()
            if deployed is not None and name in deployed.needed:
                has.discard(deployed.id_at(name))  # the part of a cut before this one, which went on
            over = [id for id in self.kept.forgotten if id in has]
            if over:
                commands += self._say(name, Forget(over))
        return commands

    def _install(self, deployed: Deployment) -> list[Command]:
        """Hand parts to those that have none, once all are here: only then is it known who can be dialed."""
        commands: list[Command] = []
        views = {name: self.sites.get(name) for name in deployed.needed}
        if not all(site is not None and site.here and site.parts is not None for site in views.values()):
            return []
        if deployed.listens is None:
            deployed.listens = [
                name for name, site in views.items() if site is not None and site.hello.host is not None
            ]
            commands.append(Keep())
        if self.trouble() is not None:
            return commands
        for name, site in views.items():
            id = deployed.id_at(name)
            if site is not None and id not in (site.parts or {}) and site.handed_part != id:
                site.handed_part = id
                commands.append(Hand(name, deployed))
        if all(site is not None and deployed.id_at(name) in (site.parts or {}) for name, site in views.items()):
            deployed.phase, deployed.ran = "running", True
            commands.append(Keep())
        return commands

    def _tell(self, deployed: Deployment) -> list[Command]:
        commands: list[Command] = []
        addresses = self.addresses(deployed)
        for name in deployed.needed:
            site, id = self.sites.get(name), deployed.id_at(name)
            if site is None or not site.here or id not in (site.parts or {}):
                continue
            others = {other: at for other, at in addresses.items() if other != name}
            move = deployed.moving
            at_rest = move is not None and move.cut and name not in move.go_on
            running = deployed.phase == "running" and name not in deployed.ended and not at_rest
            routes, revoked = deployed.routes(name), dict(self.revoked)
            want = Want(id, running, others, list(deployed.ended), routes=routes, revoked=revoked)
            commands += self._say(name, want)
        return commands

    def _say(self, name: str, message: Message) -> list[Command]:
        """Tell a site what should be, unless that was the last of its kind that it was told."""
        site = self.sites[name]
        if message in site.last_words:
            return []
        site.last_words = [each for each in site.last_words if type(each) is not type(message)] + [message]
        if isinstance(message, Want):
            site.words += 1
            message = msgspec.structs.replace(message, word=site.words)
        return [Say(name, message)]

    def addresses(self, deployed: Deployment) -> dict[str, tuple[str, int]]:
        """Return where the parts listen that are known to."""
        addresses: dict[str, tuple[str, int]] = {}
        for name in deployed.needed:
            site, state = self.sites.get(name), self._state(deployed, name)
            if site is not None and site.hello.host is not None and state is not None and state.port:
                host = site.address if site.hello.host in ("0.0.0.0", "::") else site.hello.host
                addresses[name] = host, state.port
        return addresses

    def _state(self, deployed: Deployment, name: str) -> PartState | None:
        site = self.sites.get(name)
        return None if site is None else site.part_of(deployed)

    # -- moves ------------------------------------------------------------------------------------------------------------

    def _begin(self, move: Move) -> None:
        if self._flow.moving is not None or self._flow.phase != "running":
            phase = "being moved" if self._flow.moving is not None else self._flow.phase
            raise RunError(f"flow '{self._flow.name}' is {phase}; it can be moved while it runs")
        away = [name for name in {*self._flow.needed, *move.sites.values()} if not self._is_here(name)]
        if away:
            raise RunError(f"sites {listed(away)} are not here; a move needs all that run a part, and those that will")
        self._flow.moving, self.undone, self.refused_by = move, "", ""
        why = self._why_not_on_spark(self._flow.then)
        if why is not None:
            self._flow.moving = None
            raise RunError(why)
        self._forget_luggage()

    def _move(self, deployed: Deployment, move: Move) -> list[Command]:
        """Do what is next: prepare, stop what changes, take its checkpoints, cut them anew, hand those out, and go over."""
        unfit = next((name for name, site in self.sites.items() if site.unfit), "")
        if unfit:
            self.undone, self.refused_by = f"site '{unfit}': {self.sites[unfit].unfit}", unfit
            self._end_move(forget=move.id)
            return [Keep()]
        if not move.cut:
            return self._prepare(deployed, move)
        commands = self._fetch(deployed, move)
        if commands or set(_changing(deployed, move)) - set(self._taken):  # who has answered has stopped
            return commands
        if self._checkpoints is None:
            if self._is_cutting:
                return []
            self._is_cutting = True
            return [Cut(deployed, dict(self._taken))]
        then = deployed.then
        for name in _changing(then, move):
            peer = self.sites.get(name)
            if peer is not None and peer.here and then.id not in (peer.parts or {}) and peer.handed_part != then.id:
                peer.handed_part = then.id
                after = deployed.id_at(name) if name in deployed.needed else ""
                is_there = then.id in peer.prepared
                commands.append(Hand(name, then, self._checkpoints.get(name, {}), after, is_there))
        if all(self._is_here(name) and then.id in (self.sites[name].parts or {}) for name in _changing(then, move)):
            self.kept.deployed = then
            self._forget_parts(deployed, _changing(deployed, move))
            self._forget_luggage()
            commands.append(Keep())  # until here no new part was ever started, from here on no old one is
        return commands

    def _fetch(self, deployed: Deployment, move: Move) -> list[Command]:
        """Ask for the checkpoints of those that were told to stop: each answers once it has."""
        commands: list[Command] = []
        for name in _changing(deployed, move):
            site = self.sites.get(name)
            if site is None or not site.here or name in self._taken:
                continue
            keys = move.known.get(name, [])
            if self._ahead.is_there(move, [name]):  # there was too much for one message
                move.known[name] = keys = sorted({*keys, *self._ahead.safe_keys(move, name)})
                self._ahead.forget(name)
            elif site.asked_move == move.id:
                continue
            id = deployed.id_at(name)
            if any(isinstance(word, Want) and word.id == id and not word.running for word in site.last_words):
                site.asked_move = move.id
                commands.append(Say(name, Fetch(id, move.id, keys, steps_then(deployed, move, name))))
        return commands

    def _prepare(self, deployed: Deployment, move: Move) -> list[Command]:
        """Have a process ready at every site that changes, while the old parts run, and large state; then begin to move.

        Those that go on must keep for others what these will want, before any of them begins to read.
        """
        commands: list[Command] = []
        then = deployed.then
        warmth: list[str | None] = []
        for name in _changing(then, move):
            site = self.sites.get(name)
            if site is None or not site.here:
                return commands
            if then.id not in site.prepared and site.preparing != then.id:
                site.preparing = then.id
                commands.append(Ready(name, then, deployed.id_at(name) if name in deployed.needed else ""))
            warmth.append(site.prepared[then.id].phase if then.id in site.prepared else None)
        if not all(each in ("warm", "cold") for each in warmth):
            return commands
        stop = _changing(deployed, move)
        commands += self._ahead.ask(deployed, move, [name for name in stop if self._is_here(name)])
        if self._ahead.is_there(move, stop) and all(self._is_routed(deployed, name) for name in move.go_on):
            move.cut, move.known = True, {name: self._ahead.safe_keys(move, name) for name in stop}
            self._ahead = Ahead()
            commands.append(Keep())
        return commands

    def _is_routed(self, deployed: Deployment, name: str) -> bool:
        """Say whether the part at a site goes by the routes that it should, or is through: then all have what it sent."""
        state, routes = self._state(deployed, name), deployed.routes(name)
        if not self._is_here(name) or state is None:
            return False
        return routes is None or state.routed == routes.name or state.phase == "ended"

    def _end_move(self, forget: str) -> None:
        self.kept.forgotten.append(forget)
        self._flow.moving = None
        self._forget_luggage()

    def _forget_luggage(self) -> None:
        self._ahead, self._taken, self._checkpoints, self._is_cutting = Ahead(), {}, None, False
        for site in self.sites.values():
            site.handed_part = site.asked_move = site.preparing = site.unfit = ""

    def _moves(self, id: str) -> bool:
        deployed = self.kept.deployed
        return deployed is not None and deployed.moving is not None and deployed.moving.id == id

    def _is_moved(self, name: str) -> bool:
        """Say whether a site has a part that a move stops or begins: state goes from and to no other."""
        deployed = self.kept.deployed
        if deployed is None or deployed.moving is None:
            return False
        move = deployed.moving
        return name in {*_changing(deployed, move), *_changing(deployed.then, move)}

    def _is_here(self, name: str) -> bool:
        return name in self.sites and self.sites[name].here

    # -- what is known ----------------------------------------------------------------------------------------------------

    def trouble(self) -> str | None:
        """Say why a deployment can never begin; None while it may."""
        deployed = self.kept.deployed
        if deployed is None:
            return None
        for name, site in self.sites.items():
            if site.unfit:
                return f"site '{name}' does not take its part: {site.unfit}"
        if (why := self._why_not_on_spark(deployed)) is not None:
            return why
        listens = deployed.listens
        if listens is not None:
            for one, other in deployed.joined:
                if not dials(one, other, listens) and not dials(other, one, listens):
                    return (
                        f"a stream crosses between sites '{one}' and '{other}', and neither can be dialed; "
                        "start one of them with --listen HOST"
                    )
        return None

    def _why_not_on_spark(self, deployed: Deployment) -> str | None:
        """Say which site has a part that it cannot run on Spark; None where all can."""
        for name in deployed.needed:
            site = self.sites.get(name)
            why = "" if site is None or site.hello.kind != "spark" else deployed.why_not_on_spark(name)
            if why:
                return f"site '{name}' runs its parts on Spark: {why}"
        return None

    def all_run(self) -> bool:
        """Say whether all sites are at work at what they should be, or through with it."""
        deployed = self.kept.deployed
        if deployed is None or deployed.moving is not None:
            return False
        states = [self._state(deployed, name) for name in deployed.needed]
        return all(state is not None and state.phase in ("running", "ended") for state in states)

    def missing(self) -> list[str]:
        """Return the sites that should run something, and are not here."""
        deployed = self.kept.deployed
        if deployed is None:
            return []
        return [name for name in deployed.needed if name not in self.sites or not self.sites[name].here]


def _changing(deployed: Deployment, move: Move) -> list[str]:
    """Return the sites whose parts are stopped, or begin, by a move: all but those that go on."""
    return [name for name in deployed.needed if name not in move.go_on]
