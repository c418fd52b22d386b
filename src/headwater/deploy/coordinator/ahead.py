"""How far state is that goes ahead of a move, or behind what has stopped: what is not known to be there travels last."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headwater.deploy.control.messages import Have, Piece, Send, Sent, Took
from headwater.deploy.coordinator.events import Say
from headwater.deploy.coordinator.state import Deployment, Move


class Ahead:
    """What sites have said of it by their present connections."""

    def __init__(self) -> None:
        self._asked: set[str] = set()  #: sites that were told to send
        self._steps: dict[str, Mapping[str, str]] = {}  #: by site that has: the keys of state, and the step of each
        self._has: dict[str, set[str]] = {}  #: keys, by the site that they are at
        self.senders: set[str] = set()  #: sites that pieces have come from

    def ask(self, deployed: Deployment, move: Move, sites: Collection[str]) -> list[Say]:
        """Have sites send what they have of steps that will be elsewhere, or in another part; each once."""
        new = [site for site in sites if site not in self._asked]
        self._asked.update(new)
        return [Say(site, Send(deployed.id_at(site), move.id, steps_then(deployed, move, site))) for site in new]

    def hear(self, site: str, message: Piece | Sent | Have | Took, deployed: Deployment, move: Move) -> list[Say]:
        """Take note of what a site says; pieces of a step go on to where that will be, words of them back."""
        match message:
            case Piece(step=step) if deployed.sites.get(step) == site:
                self.senders.add(site)
                return [Say(move.sites[step], message)]
            case Took(step=step) if step in deployed.sites and move.sites[step] == site:
                return [Say(deployed.sites[step], message)]
            case Sent(keys=keys):
                self._steps[site] = keys
            case Have(key=key):
                self._has.setdefault(site, set()).add(key)
        return []

    def is_there(self, move: Move, sites: Collection[str]) -> bool:
        """Say whether all that sites have sent is where it will be needed."""
        return all(site in self._steps and len(self.safe_keys(move, site)) == len(self._steps[site]) for site in sites)

    def safe_keys(self, move: Move, site: str) -> list[str]:
        """Return the keys of state of a site that is where it will be needed."""
        steps = self._steps.get(site, {})
        return sorted(key for key, step in steps.items() if key in self._has.get(move.sites.get(step, ""), ()))

    def forget(self, site: str) -> None:
        """Expect a site to say anew what it has sent."""
        self._steps.pop(site, None)


def steps_then(deployed: Deployment, move: Move, site: str) -> dict[str, str]:
    """Return where each step of a site will be."""
    return {step: move.sites[step] for step, at in deployed.sites.items() if at == site}
