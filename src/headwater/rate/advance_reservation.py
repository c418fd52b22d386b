"""Cores that are held before a flow starts: whoever waits for it to go on waits neither for a supervisor nor for a group."""

from __future__ import annotations

import logging

from headwater.errors import RateError
from headwater.flow.contract import Contract
from headwater.flow.flow import Flow
from headwater.flow.profile import Profile
from headwater.rate.admission import admit
from headwater.rate.client import Client
from headwater.rate.messages import End
from headwater.rate.reservation import Reservation

log = logging.getLogger(__name__)


class AdvanceReservation:
    """A line to the supervisor, which is started where there is none, and what it holds for a flow of this process.

    Where it refuses, what is in the way may be gone by the time the flow starts, such as the part that this one takes the
    place of: `start` asks once more, and tells. What is held is let go when this process ends.
    """

    def __init__(
        self,
        flow: Flow,
        contract: Contract,
        *,
        profile: Profile | None = None,
        best_effort: bool = False,
        client: Client | None = None,
    ) -> None:
        """Ask; nothing is tried, since records that are not there yet cannot be sampled."""
        self.client = client or Client()
        self._admitted: Reservation | None = None
        try:
            self._admitted = admit(flow, contract, self.client, profile=profile, best_effort=best_effort, trial_s=0.0)
        except RateError as error:
            log.info("%s; it is asked again when the flow starts", error)

    def take(self, contract: Contract) -> Reservation | None:
        """Return what is held, once, for whoever starts the flow; None where nothing is, or for another contract."""
        reservation, self._admitted = self._admitted, None
        if reservation is not None and reservation.contract != contract:
            self.client.say(End(reservation.id))
            return None
        return reservation
