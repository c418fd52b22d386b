"""Sites in networks of their own on this machine: what they say to each other takes the time that the net says."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from headwater.deploy.local.carrier import Carrier, address_of
from headwater.deploy.local.emulation import Emulation
from headwater.deploy.local.namespace import Namespace
from headwater.deploy.local.quota import Quotas
from headwater.deploy.local.relay import Relay
from headwater.deploy.local.wires import Wires
from headwater.net.table import net_from_table
from headwater.rate import cgroups
from ports import free_port
from waiting import PATIENCE_S

WAY_S = 0.05
NET = {
    "name": "two",
    "classes": {"box": {"cpu_ips": 1e9, "access_bps": 1e8}},
    "wan": {"kind": "matrix", "latency_s": [[0.0, WAY_S], [WAY_S, 0.0]]},
    "zones": [{"name": name, "devices": [{"class": "box"}]} for name in ("barn", "cloud")],
}


class Two(list):
    """Two namespaces, and what carries packets between them."""

    def __init__(self, made, carrier):
        super().__init__(made)
        self.carrier = carrier


@pytest.fixture
def two():
    """Return two namespaces and what carries packets between them."""
    wires = Wires([[0.0, WAY_S], [WAY_S, 0.0]], [1e8, 1e8])
    made = []
    try:
        made += [Namespace(address_of(0), wires.mtu)]
        made += [Namespace(address_of(1), wires.mtu)]
    except OSError as error:
        for each in made:
            each.close()
        pytest.skip(f"network namespaces need root: {error}")
    carrier = Carrier(made, wires)
    yield Two(made, carrier)
    carrier.close()
    for each in made:
        each.close()


def echoing(listening):
    """Answer one caller with what it says, until it hangs up."""

    def answer():
        caller, _ = listening.accept()
        with caller:
            while said := caller.recv(2**16):
                caller.sendall(said)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


def listening_in(namespace, host):
    with namespace.inside():
        made = socket.create_server((host, 0))
    made.settimeout(PATIENCE_S)
    return made


def test_a_word_and_its_answer_take_the_way_twice_and_all_arrives(two):
    barn, cloud = two
    with listening_in(cloud, cloud.address) as listening:
        thread = echoing(listening)
        with barn.inside():
            caller = socket.create_connection((cloud.address, listening.getsockname()[1]), PATIENCE_S)
        with caller:
            began_s = time.monotonic()
            caller.sendall(b"ping")
            assert caller.recv(16) == b"ping"
            assert time.monotonic() - began_s >= 2 * WAY_S  # never sooner; later on a busy machine
            sent = os.urandom(2**18)
            sender = threading.Thread(target=caller.sendall, args=(sent,))
            sender.start()
            found = b""
            while len(found) < len(sent):
                found += caller.recv(2**16)
            sender.join()
            assert found == sent
        thread.join()


def test_a_namespace_has_nothing_but_its_own_loopback_and_the_way_to_others(two):
    with socket.create_server(("127.0.0.1", 0)) as outside, two[0].inside():
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(outside.getsockname(), 5)
        with pytest.raises(OSError, match="unreachable"):
            socket.create_connection(("192.0.2.1", 80), 5)
        child = subprocess.run(["cat", "/proc/net/dev"], capture_output=True, text=True, check=True)
    names = [line.split(":")[0].strip() for line in child.stdout.splitlines()[2:]]
    assert {"lo", "sites"} <= set(names)
    assert "eth0" not in names


def ask(server):
    """Wait for a word of a server; who resets the connection may do so as soon as there is one."""
    with socket.create_connection(server, PATIENCE_S) as caller:
        return caller.recv(16)


def test_a_server_of_this_machine_is_reached_by_a_relay_and_who_calls_in_vain_is_told(two):
    with socket.create_server(("127.0.0.1", 0)) as outside:
        outside.settimeout(PATIENCE_S)
        nobody = free_port()
        relay = Relay(two, [outside.getsockname(), ("127.0.0.1", nobody)])
        try:
            thread = echoing(outside)
            with two[1].inside():
                caller = socket.create_connection(outside.getsockname(), PATIENCE_S)
                with pytest.raises(ConnectionResetError):
                    ask(("127.0.0.1", nobody))
            with caller:
                caller.sendall(b"status")
                assert caller.recv(16) == b"status"
            thread.join()
        finally:
            relay.close()


def connected(barn, cloud):
    """Return both ends of a connection from one namespace to another."""
    with listening_in(cloud, cloud.address) as listening:
        with barn.inside():
            ours = socket.create_connection((cloud.address, listening.getsockname()[1]), PATIENCE_S)
        theirs, _ = listening.accept()
    theirs.settimeout(PATIENCE_S)
    return ours, theirs


def both_ways(carrier, how):
    carrier.cut({} if how is None else {(0, 1): how, (1, 0): how})


def test_what_is_said_over_a_silent_link_comes_once_it_is_mended(two):
    ours, theirs = connected(*two)
    with ours, theirs:
        both_ways(two.carrier, "silent")
        ours.sendall(b"first")
        theirs.setblocking(False)
        until = time.monotonic() + 20 * WAY_S
        while time.monotonic() < until:
            with pytest.raises(BlockingIOError):
                theirs.recv(16)
            time.sleep(WAY_S)
        both_ways(two.carrier, None)
        theirs.setblocking(True)
        theirs.settimeout(PATIENCE_S)
        assert theirs.recv(16) == b"first"


def test_a_link_that_resets_ends_connections_at_both_ends_and_refuses_new_ones(two):
    barn, cloud = two
    ours, theirs = connected(barn, cloud)
    with ours, theirs, listening_in(cloud, cloud.address) as listening:
        at = cloud.address, listening.getsockname()[1]
        both_ways(two.carrier, "reset")
        for each in (ours, theirs):
            each.sendall(b"anybody there?")
            with pytest.raises(ConnectionResetError):
                each.recv(16)
        with barn.inside(), pytest.raises(ConnectionRefusedError):
            socket.create_connection(at, PATIENCE_S)
        both_ways(two.carrier, None)
        with barn.inside():
            socket.create_connection(at, PATIENCE_S).close()


@pytest.mark.parametrize("how", ["silent", "reset"])
def test_a_way_to_a_server_is_cut_for_one_site_and_mended(two, how):
    with socket.create_server(("127.0.0.1", 0)) as outside:
        outside.settimeout(PATIENCE_S)
        at = outside.getsockname()
        relay = Relay(two, [at])
        try:
            callers, heard = [], []
            for each in two:
                with each.inside():
                    callers.append(socket.create_connection(at, PATIENCE_S))
                callers[-1].sendall(b"here")
                heard.append(outside.accept()[0])
                heard[-1].settimeout(PATIENCE_S)
                assert heard[-1].recv(16) == b"here"
            relay.cut({(0, at): how})
            callers[1].sendall(b"still")
            assert heard[1].recv(16) == b"still"
            if how == "reset":
                for each in (callers[0], heard[0]):
                    with pytest.raises(ConnectionResetError):
                        each.recv(16)
            else:
                callers[0].sendall(b"late")
                heard[0].settimeout(4 * WAY_S)
                with pytest.raises(TimeoutError):
                    heard[0].recv(16)
            relay.cut({})
            if how == "silent":
                heard[0].settimeout(PATIENCE_S)
                assert heard[0].recv(16) == b"late"
            with two[0].inside():
                again = socket.create_connection(at, PATIENCE_S)
            again.sendall(b"again")
            last, _ = outside.accept()
            assert last.recv(16) == b"again"
            for each in (*callers, *heard, again, last):
                each.close()
        finally:
            relay.close()


def test_where_namespaces_cannot_be_made_sites_share_the_network_of_this_machine(monkeypatch):
    def refuse(address, mtu):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("headwater.deploy.local.emulation.Namespace", refuse)
    emulation = Emulation(net_from_table(NET, "two"), ["barn", "cloud"], [("192.0.2.1", 8471)])
    try:
        assert emulation.address("barn") == "127.0.0.1"
        assert emulation.way_to(("192.0.2.1", 8471)) == ("192.0.2.1", 8471)
        assert "as root" in emulation.why_uncut()
        assert emulation.notices == [
            "links are as fast as this machine: it does not allow network namespaces (Operation not permitted)"
        ]
        process = emulation.start("barn", [sys.executable, "-c", "pass"])
        assert process.wait(PATIENCE_S) == 0
        process.stdin.close()
    finally:
        emulation.close()


def groups():
    found = cgroups.find()
    if found is None:
        pytest.skip("control groups of the processor need root")
    return found


def made_by(found, pid):
    return list(found.base.glob(f"headwater-up.{pid}.*"))


def test_a_site_takes_no_more_than_its_share_of_cores_and_its_group_goes_with_it():
    found = groups()
    emulation = Emulation(net_from_table(NET, "two"), ["barn", "cloud"], [], namespaces=False, core_ips=2e9)
    process = emulation.start("barn", [sys.executable, "-c", "input()"])
    try:
        (group,) = made_by(found, os.getpid())
        assert (group / "cgroup.procs").read_text().split() == [str(process.pid)]
        bound = "cpu.cfs_quota_us" if found.version == 1 else "cpu.max"
        assert (group / bound).read_text().split()[0] == "5000"  # half of each period
        assert emulation.notices == ["cores that sites may take: 'barn' 0.5, 'cloud' 0.5; all others have this machine's "
                               f"{len(os.sched_getaffinity(0))}"]  # fmt: skip
    finally:
        process.stdin.close()
        process.wait(PATIENCE_S)
        emulation.close()
    assert made_by(found, os.getpid()) == []


def test_groups_of_who_was_killed_are_removed_by_the_next_one_to_come():
    found = groups()
    code = (
        "import os, signal\n"
        "from headwater.rate import cgroups\n"
        "from headwater.deploy.local.quota import Quotas\n"
        "found = cgroups.find()\n"
        "Quotas(found).bound(os.getpid(), 0, 0.5)\n"
        "print(*found.base.glob(f'headwater-up.{os.getpid()}.*'), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    said, _ = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == -signal.SIGKILL
    assert f"headwater-up.{child.pid}." in said
    Quotas(found).close()
    assert made_by(found, child.pid) == []
