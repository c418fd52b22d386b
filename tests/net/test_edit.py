"""A net with devices added: the rest keeps its names, numbers follow."""

import dataclasses

import numpy as np
import pytest

from headwater import net as nets
from headwater.errors import NetError
from headwater.net.device import PI_3, DeviceClass
from headwater.net.edit import with_devices


@pytest.fixture
def net():
    return nets.cloud_edge(2, 2, 3, seed=1)


def test_what_was_there_keeps_its_name_its_class_and_its_distances(net):
    for zone in ("site-0", "cloud-1"):
        more = with_devices(net, zone, "pi-3", 2)
        assert len(more) == len(net) + 2
        for device in range(len(net)):
            name = net.device_name(device)
            there = more.device(name)
            assert more.classes[more.class_of[there]] == net.classes[net.class_of[device]]
            away = [net.latency_s(device, other) for other in range(len(net))]
            assert [more.latency_s(there, more.device(net.device_name(o))) for o in range(len(net))] == away


def test_new_devices_stand_in_the_middle_of_their_zone(net):
    more = with_devices(net, "site-1", "pi-3")
    new = more.device("site-1/3")
    assert more.classes[more.class_of[new]] == PI_3
    assert more.lan_s[new] == np.median(net.lan_s[5:8])
    assert with_devices(net, "site-1", "pi-3", lan_s=0.5).lan_s[new] == 0.5


def test_a_device_that_was_alone_keeps_its_zones_name(net):
    more = with_devices(net, "cloud-0", "ryzen-1800x", 2)
    assert [more.device_name(d) for d in more.devices_of(0)] == ["cloud-0", "cloud-0/1", "cloud-0/2"]
    again = with_devices(more, "cloud-0", "ryzen-1800x")
    assert again.device_name(3) == "cloud-0/3"


def test_a_class_may_come_from_the_shelf_or_be_new(net):
    shelf = with_devices(net, "site-0", "azure-d2")
    assert shelf.classes[-1].name == "azure-d2"
    own = with_devices(net, "site-0", DeviceClass("box", cpu_ips=1e9))
    assert own.classes[int(own.class_of[own.device("site-0/3")])].name == "box"


@pytest.mark.parametrize(
    ("zone", "kind", "count", "message"),
    [
        ("site-9", "pi-2", 1, "no zone 'site-9'"),
        ("site-0", "pi-22", 1, "no class 'pi-22'.*did you mean 'pi-2'"),
        ("site-0", "pi-2", 0, "at least 1 device"),
        ("site-0", DeviceClass("pi-2", cpu_ips=1.0), 1, "another class 'pi-2'"),
    ],
)
def test_what_cannot_be_added_is_told(net, zone, kind, count, message):
    with pytest.raises(NetError, match=message):
        with_devices(net, zone, kind, count)


def test_sensors_stay_at_their_devices():
    net = nets.cloud_edge(1, 2, 2)
    at = {"near": net.device("site-0/1"), "far": net.device("site-1/0")}
    larger = with_devices(dataclasses.replace(net, sensors=tuple(at.items())), "site-0", "pi-2", 3)
    assert {source: larger.device_name(device) for source, device in larger.sensors} == {
        "near": "site-0/1",
        "far": "site-1/0",
    }
