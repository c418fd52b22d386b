"""A connection to an MQTT broker that comes back by itself."""

from __future__ import annotations

import logging
import ssl
import sys
import time
from collections.abc import Callable
from threading import Event
from typing import Any

from headwater.errors import InputError
from headwater.io.mqtt import Address

log = logging.getLogger(__name__)

_KEEPALIVE_S = 30
_LONGEST_PAUSE_S = 30.0
_SAY_EVERY_S = 60.0
_PASSING = "Server unavailable"  # the one refusal that may be different next time


class Connection:
    """Keeps a client connected, tells when it is, and says so once when it cannot be.

    The pause between attempts doubles from `retry_s` to half a minute. A refusal that trying again will not
    change, such as a wrong password, is kept in `refused`.
    """

    def __init__(self, address: Address, client_id: str, *, keep_session: bool, retry_s: float) -> None:
        self._address = address
        self.client = _client(client_id, keep_session)
        self.connected = Event()
        self.refused: str | None = None
        self._closing = False
        self._said_s: float | None = None  # when trouble was last logged
        self._on_connect: Callable[[bool], None] = lambda session_kept: None
        self._on_change: Callable[[], None] = lambda: None
        if address.username is not None:
            self.client.username_pw_set(address.username, address.password)
        if address.tls:
            self._use_tls()
        self.client.reconnect_delay_set(retry_s, max(retry_s, _LONGEST_PAUSE_S))
        self.client.on_connect = self._connected
        self.client.on_connect_fail = self._failed
        self.client.on_disconnect = self._disconnected

    def start(self, on_connect: Callable[[bool], None], on_change: Callable[[], None]) -> None:
        """Connect in the background.

        `on_connect` hears whether the broker kept the session, before `connected` is set; `on_change` is
        called after each change of it.
        """
        self._on_connect, self._on_change = on_connect, on_change
        self.client.connect_async(self._address.host, self._address.port, keepalive=_KEEPALIVE_S)
        self.client.loop_start()

    def check(self) -> None:
        """Raise InputError if the broker refused us for good."""
        if self.refused is not None:
            raise InputError(
                f"broker {self._address} refuses the connection: {self.refused}; "
                "are user and password right, and may this client connect?"
            )

    def close(self) -> None:
        """Say goodbye and stop."""
        self._closing = True
        self.client.disconnect()
        self.client.loop_stop()

    def _use_tls(self) -> None:
        address = self._address
        try:
            self.client.tls_set(ca_certs=address.ca, certfile=address.certificate, keyfile=address.key)
        except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
            named = [str(file) for file in (address.ca, address.certificate, address.key) if file]
            raise InputError(f"cannot use TLS files {', '.join(named)} for {address}: {error}") from error

    def _connected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            if str(reason) != _PASSING:
                self.refused = str(reason)
            self._say(f"broker {self._address} refuses the connection: {reason}")
            return
        if self._said_s is not None:
            log.warning("broker %s is there again", self._address)
        self._said_s, self.refused = None, None
        self._on_connect(flags.session_present)
        self.connected.set()
        self._on_change()

    def _failed(self, client: Any, userdata: Any) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, ssl.SSLCertVerificationError):
            self.refused = f"its certificate is not trusted ({error.verify_message})"
        self._say(f"cannot reach broker {self._address}: {error}; trying again")

    def _disconnected(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.connected.clear()
        self._on_change()
        if not self._closing:
            self._say(f"connection to broker {self._address} is lost: {reason}; trying again")

    def _say(self, message: str) -> None:
        """Log at most once a minute: a broker may be away for days."""
        now = time.monotonic()
        if not self._closing and (self._said_s is None or now - self._said_s >= _SAY_EVERY_S):
            self._said_s = now
            log.warning(message)


def _client(client_id: str, keep_session: bool) -> Any:
    try:
        from paho.mqtt.client import Client, MQTTv311
        from paho.mqtt.enums import CallbackAPIVersion
    except ImportError:
        raise InputError("MQTT needs paho-mqtt, which is not installed: pip install 'headwater[mqtt]'") from None
    return Client(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        clean_session=not keep_session,
        protocol=MQTTv311,
        manual_ack=True,
    )
