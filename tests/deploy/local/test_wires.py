"""Links between the sites of a net on one machine: as far and as fast as the net says."""

from pathlib import Path

import pytest

from headwater import net as nets
from headwater.deploy.local.emulation import cores_of
from headwater.deploy.local.wires import Wires

PLANT = nets.read(Path(__file__).parents[3] / "examples" / "plant" / "plant.toml")


def test_a_packet_takes_the_latency_of_the_way_and_the_time_that_the_slower_link_is_busy_with_it():
    wires = Wires.of(PLANT, ["press hall", "cloud"])
    far_s = 0.031 + 0.0001  # what the matrix has, and the way to the controller's own gateway
    assert wires.arrival_s(0, 1, 1250, now_s=5.0) == pytest.approx(5.0 + 1250 * 8 / 1e8 + far_s)
    assert wires.arrival_s(0, 1, 1250, now_s=5.0) == pytest.approx(5.0 + 2 * 1250 * 8 / 1e8 + far_s)
    assert wires.arrival_s(1, 0, 1250, now_s=9.0) == pytest.approx(9.0 + 1250 * 8 / 1e8 + far_s)


def test_a_fast_link_serves_others_while_a_slow_one_is_busy():
    wires = Wires([[0.0] * 3] * 3, [1e9, 1e6, 1e9])
    slow = wires.arrival_s(0, 1, 12_500, now_s=0.0)
    assert slow == pytest.approx(0.1)
    assert wires.arrival_s(0, 2, 12_500, now_s=0.0) == pytest.approx(2e-4)


def test_what_has_no_way_or_no_room_is_lost():
    wires = Wires([[0.0, float("inf")], [float("inf"), 0.0]], [1e6, 1e6])
    assert wires.arrival_s(0, 1, 100, now_s=0.0) is None
    narrow = Wires([[0.0, 0.01], [0.01, 0.0]], [1e6, 1e6])
    sent = [narrow.arrival_s(0, 1, 1500, now_s=0.0) for _ in range(100)]
    assert sent[0] is not None
    assert sent[-1] is None  # half a second's worth waits
    assert narrow.arrival_s(0, 1, 1500, now_s=2.0) is not None
    assert Wires([[0.0, 0.01], [0.01, 0.0]], [0.0, 1e6]).arrival_s(1, 0, 1500, now_s=0.0) is None


def test_packets_are_as_long_as_the_slowest_link_allows():
    assert Wires.of(PLANT, ["press hall", "server room"]).mtu == 9000
    assert Wires([[0.0]], [1e6]).mtu == 1500
    assert Wires([[0.0]], [float("inf")]).mtu == 9000


def test_a_site_is_as_many_cores_of_this_machine_as_its_devices_are_fast():
    assert cores_of(PLANT, "press hall", 2e9) == pytest.approx(2.0)  # two controllers
    assert cores_of(PLANT, "paint hall", 8e9) == pytest.approx(0.25)
