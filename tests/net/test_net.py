"""Nets: what they answer, what they refuse, and that files give them back."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import net as nets
from headwater.errors import NetError
from headwater.net.nearest import nearest
from headwater.net.table import net_from_table
from properties import examples


def test_latency_is_wan_plus_both_lans_and_nothing_inside_a_device():
    net = nets.cloud_edge(2, 3, 4, seed=1)
    a, b = net.device("site-0/1"), net.device("site-2/3")
    wan = net.wan.row(int(net.zone_of(a)))[int(net.zone_of(b))]
    assert float(net.latency_s(a, b)) == pytest.approx(wan + net.lan_s[a] + net.lan_s[b])
    assert float(net.latency_s(a, a)) == 0.0
    assert 0.065 <= wan <= 0.085


def test_records_that_wait_before_they_cross_find_other_zones_farther_and_their_own_as_near():
    net = nets.cloud_edge(1, 2, 2, seed=1)
    held = net.with_waits(0.1)
    here, beside, far = (net.device(name) for name in ("site-0/0", "site-0/1", "site-1/0"))
    assert float(held.latency_s(here, far)) == pytest.approx(float(net.latency_s(here, far)) + 0.1)
    assert float(held.latency_s(here, beside)) == float(net.latency_s(here, beside))
    assert held.wan.row(1).tolist() == [float(held.wan.between(1, zone)) for zone in range(3)]
    with pytest.raises(NetError, match="the wait before a crossing must be 0 s or more"):
        net.with_waits(-1.0)


def test_bandwidth_is_that_of_the_slower_access_link():
    net = nets.cloud_edge(2, 2, 2)
    cloud, other_cloud, device = net.device("cloud-0"), net.device("cloud-1"), net.device("site-0/0")
    assert float(net.bandwidth_bps(cloud, device)) == 100e6
    assert float(net.bandwidth_bps(cloud, other_cloud)) == 1e9
    assert float(net.bandwidth_bps(device, device)) == math.inf


def test_the_27_published_sizes_have_the_published_numbers_of_devices():
    sizes = [c + s * d for c, s, d in nets.VEITH_SIZES]
    assert len(sizes) == 27
    assert (sum(n < 10_000 for n in sizes), sum(n >= 100_000 for n in sizes)) == (15, 3)
    assert max(sizes) == 250_500
    assert len(nets.cloud_edge(10, 10, 10)) == 110


def test_every_device_has_a_name_that_finds_it_again():
    net = nets.cloud_edge(3, 2, 5)
    assert [net.device(net.device_name(d)) for d in range(len(net))] == list(range(len(net)))


def test_an_unknown_device_is_named_with_some_that_exist():
    with pytest.raises(NetError, match=r"no device 'pi-9'.*'cloud-0'"):
        nets.cloud_edge(1, 1, 1).device("pi-9")


def test_cutting_a_link_leaves_the_other_ways_open():
    net = nets.cloud_edge(2, 2, 1)
    cut = net.without_links([(0, 2)])
    assert float(cut.latency_s(0, 2)) == math.inf
    assert float(cut.latency_s(2, 0)) == math.inf
    assert float(cut.latency_s(1, 2)) == float(net.latency_s(1, 2))
    assert math.isinf(cut.wan.row(0)[2])


@pytest.mark.parametrize(
    "wan",
    [
        nets.Gateways(np.array([0.01, 0.02, 0.03])),
        nets.Coordinates(np.array([0.0, 3.0, 3.0]), np.array([0.0, 4.0, 0.0]), 0.001, 0.01),
        nets.Matrix(np.array([[0, 1, 2.0], [1, 0, 3], [2, 3, 0]])),
    ],
)
def test_row_and_between_agree_for_every_form_of_wan(wan):
    zones = np.arange(3)
    for a in range(3):
        assert np.allclose(wan.row(a), wan.between(np.full(3, a), zones))
    assert wan.row(1)[1] == 0.0


def test_coordinates_give_base_plus_distance():
    wan = nets.Coordinates(np.array([0.0, 3.0]), np.array([0.0, 4.0]), 0.001, 0.01)
    assert wan.row(0)[1] == pytest.approx(0.001 + 0.05)


@pytest.mark.parametrize("suffix", ["toml", "json", "npz"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nets.cloud_edge(2, 3, 4, seed=3),
        lambda: nets.city(350, per_cabinet=100, seed=2),
        lambda: nets.pis_and_vm(3),
    ],
)
def test_a_net_survives_its_file(tmp_path, suffix, make):
    net, path = make(), tmp_path / f"net.{suffix}"
    nets.write(net, path)
    back = nets.read(path)
    assert back.zones == net.zones
    assert back.classes == net.classes
    assert back.trust == net.trust
    assert np.array_equal(back.first, net.first)
    assert np.array_equal(back.class_of, net.class_of)
    assert np.array_equal(back.lan_s, net.lan_s)
    assert np.array_equal(back.wan.row(1), net.wan.row(1))


def test_a_written_net_may_name_devices_and_trust_zones(tmp_path):
    path = tmp_path / "plant.toml"
    path.write_text("""
name = "plant"
[classes.plc]
cpu_ips = 1e9
access_bps = 1e7
[wan]
kind = "gateways"
[[zones]]
name = "hall"
trust = "inside"
up_s = 0.01
devices = [{class = "plc", name = "press", lan_s = 0.001}, {class = "plc", count = 2}]
""")
    net = nets.read(path)
    assert net.device("press") == 0
    assert net.trust == ("inside",)
    assert net.names == ("press", "hall/1", "hall/2")


BAD = {
    "an unknown key": ({"zonez": []}, "unknown key 'zonez'; did you mean 'zones'"),
    "no zones": ({"zones": []}, "at least one"),
    "a zone without name": ({"zones": [{"devices": []}]}, "needs a name"),
    "an unknown class": ({"zones": [{"name": "a", "devices": [{"class": "pi-9"}]}]}, "class 'pi-9'"),
    "a zone without devices": ({"zones": [{"name": "a"}]}, "no devices"),
    "a negative latency": (
        {"zones": [{"name": "a", "devices": [{"class": "pi-2", "lan_s": -1}]}]},
        "must be 0 s or more; got -1",
    ),
    "a NaN latency": (
        {"zones": [{"name": "a", "devices": [{"class": "pi-2", "lan_s": math.nan}]}]},
        "must be 0 s or more; got nan",
    ),
    "text for a number": (
        {"zones": [{"name": "a", "devices": [{"class": "pi-2", "lan_s": "1"}]}]},
        "a number; got '1'",
    ),
    "a negative capacity": (
        {"classes": {"x": {"cpu_ips": -5}}, "zones": [{"name": "a", "devices": [{"class": "x"}]}]},
        "cpu_ips must be above 0; got -5",
    ),
    "a NaN capacity": (
        {"classes": {"x": {"cpu_ips": math.nan}}, "zones": [{"name": "a", "devices": [{"class": "x"}]}]},
        "got NaN",
    ),
    "a misspelt class key": (
        {"classes": {"x": {"cpu_ips": 1, "batery_mah": 3}}, "zones": []},
        "did you mean 'battery_mah'",
    ),
    "more devices than fit": (
        {"zones": [{"name": "a", "devices": [{"class": "pi-2", "count": 10**14}]}]},
        "count of 'pi-2' is at most 100,000,000 in one entry; got 100,000,000,000,000",
    ),
    "an uneven matrix": (
        {
            "wan": {"kind": "matrix", "latency_s": [[0, 1], [2, 0]]},
            "zones": [{"name": n, "devices": [{"class": "pi-2"}]} for n in "ab"],
        },
        "the same both ways",
    ),
    "an unknown wan": (
        {"wan": {"kind": "wire"}, "zones": [{"name": "a", "devices": [{"class": "pi-2"}]}]},
        "wan.kind",
    ),
    "missing coordinates": (
        {"wan": {"kind": "coordinates"}, "zones": [{"name": "a", "devices": [{"class": "pi-2"}]}]},
        "needs x and y",
    ),
    "two zones of one name": (
        {"zones": [{"name": "a", "devices": [{"class": "pi-2"}]}] * 2},
        "two zones called 'a'",
    ),
    "a name for many": (
        {"zones": [{"name": "a", "devices": [{"class": "pi-2", "name": "x", "count": 2}]}]},
        "cannot be 2 devices",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_wrong_net_says_what_is_wrong(what):
    table, message = BAD[what]
    with pytest.raises(NetError, match=message):
        net_from_table(table, "net")


@pytest.mark.parametrize("name", ["absent.toml", "net.xml"])
def test_a_file_that_cannot_be_a_net_is_named(tmp_path, name):
    if name == "net.xml":
        (tmp_path / name).write_text("<net/>")
    with pytest.raises(NetError, match=name):
        nets.read(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04broken", b"not an archive at all"])
def test_a_broken_binary_file_is_an_error_of_ours(tmp_path, content):
    path = tmp_path / "net.npz"
    path.write_bytes(content)
    with pytest.raises(NetError, match="not a net of ours"):
        nets.read(path)


def test_a_pickled_object_in_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "net.npz"
    np.savez(path, header=np.array([{"version": 1}], dtype=object))
    with pytest.raises(NetError, match="not a net of ours"):
        nets.read(path)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1)), min_size=1, max_size=30), st.integers(1, 4))
@examples(60)
def test_the_index_lists_every_group_nearest_first(devices, zones):
    devices = sorted(devices, key=lambda d: d[0] % zones)
    sizes = [sum(d[0] % zones == z for d in devices) for z in range(zones)]
    net = nets.Net(
        "drawn",
        (nets.PI_2, nets.PI_3, nets.RYZEN),
        tuple(f"z{i}" for i in range(zones)),
        np.concatenate([[0], np.cumsum(sizes)]),
        np.array([d[0] for d in devices], np.uint16),
        np.array([d[1] for d in devices]),
        nets.Gateways(np.zeros(zones)),
    )
    index = nearest(net)
    seen = []
    for group in range(len(index.head)):
        members = index.members(group)
        assert members[0] == index.head[group]
        lans = net.lan_s[members]
        assert (np.diff(lans) >= 0).all()
        assert {int(net.zone_of(int(d))) for d in members} == {int(index.zone[group])}
        assert {int(net.class_of[d]) for d in members} == {int(index.kind[group])}
        assert all(index.group_of(int(d)) == group for d in members)
        seen += members.tolist()
    assert sorted(seen) == list(range(len(net)))


def test_a_million_devices_take_ten_bytes_each_in_the_binary_form(tmp_path):
    net, path = nets.cloud_edge(10, 100, 10_000), tmp_path / "big.npz"
    nets.write(net, path)
    assert path.stat().st_size < 11 * len(net)
    assert len(nets.read(path)) == 1_000_010


def test_reading_the_binary_form_takes_at_most_twenty_bytes_per_device(tmp_path):
    import tracemalloc

    path = tmp_path / "big.npz"
    nets.write(nets.cloud_edge(10, 100, 10_000), path)
    tracemalloc.start()
    net = nets.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * len(net)


@pytest.mark.parametrize("field", ["cpu_ips", "recharge_s", "harvest_ma", "idle_ma", "price_per_hour"])
def test_what_no_device_has_without_end_must_be_finite(field):
    with pytest.raises(NetError, match=f"'box': {field} must be finite; got inf"):
        nets.DeviceClass("box", **({"cpu_ips": 1e9} | {field: math.inf}))


def two_zones(names, sizes):
    devices = [[{"class": "pi-2", "count": size}] for size in sizes]
    return {"zones": [{"name": n, "devices": d} for n, d in zip(names, devices, strict=True)]}


def test_two_devices_never_answer_to_one_name():
    with pytest.raises(NetError, match="'a/0' is both the only device of zone 'a/0' and device 0 of zone 'a'"):
        net_from_table(two_zones(("a", "a/0"), (2, 1)), "twice")
    named = two_zones(("a", "b"), (2, 1))
    named["zones"][1]["devices"][0]["name"] = "a/1"
    with pytest.raises(NetError, match="'a/1' is there twice"):
        net_from_table(named, "twice")


@pytest.mark.parametrize(("names", "sizes"), [(("a", "a/7"), (2, 1)), (("a", "a/0"), (2, 3)), (("a/b", "a"), (1, 1))])
def test_a_stroke_in_a_zones_name_leaves_every_device_findable(names, sizes):
    net = net_from_table(two_zones(names, sizes), "strokes")
    assert [net.device(net.device_name(d)) for d in range(len(net))] == list(range(len(net)))


def test_json_says_null_where_there_is_no_way_and_never_infinity(tmp_path):
    far = np.array([[0.0, math.inf], [math.inf, 0.0]])
    net = nets.cloud_edge(1, 1, 1)
    cut = nets.Net("cut", net.classes, net.zones, net.first, net.class_of, net.lan_s, nets.Matrix(far))
    nets.write(cut, tmp_path / "cut.json")
    text = (tmp_path / "cut.json").read_text()
    assert "Infinity" not in text
    assert math.isinf(float(nets.read(tmp_path / "cut.json").latency_s(0, 1)))
    (tmp_path / "bad.json").write_text(text.replace("null", "Infinity"))
    with pytest.raises(NetError, match="JSON has no Infinity; leave out a limit"):
        nets.read(tmp_path / "bad.json")


def test_zones_whose_parts_run_on_spark_say_so_in_every_file(tmp_path):
    zones = [{"name": name, "up_s": 0.01, "devices": [{"class": "pi-2"}]} for name in ("barn", "cloud", "lake")]
    zones[1] |= {"kind": "spark", "master": "local[2]"}
    zones[2] |= {"kind": "spark"}
    net = net_from_table({"zones": zones, "wan": {"kind": "gateways"}}, "farm")
    assert net.spark == (("cloud", "local[2]"), ("lake", "local[*]"))
    for name in ("net.toml", "net.json", "net.npz"):
        nets.write(net, tmp_path / name)
        assert nets.read(tmp_path / name).spark == net.spark
    with pytest.raises(NetError, match="the kind of zone 'barn' is 'engine' or 'spark'; got 'sparc'"):
        net_from_table({"zones": [zones[0] | {"kind": "sparc"}]}, "farm")
    with pytest.raises(NetError, match="zone 'barn' has a master, which is Spark's"):
        net_from_table({"zones": [zones[0] | {"master": "local[2]"}]}, "farm")


def test_what_sites_say_of_themselves_is_in_every_file_and_checked(tmp_path):
    zones = [{"name": name, "up_s": 0.01, "devices": [{"class": "pi-2"}]} for name in ("barn", "cloud")]
    zones[0] |= {"carbon": 40, "price": 0.25, "cores": 1.5, "uplink": "rate=500 kB/s,first=alarms"}
    net = net_from_table({"zones": zones, "wan": {"kind": "gateways"}}, "farm")
    assert {key: value for _, key, value in net.says} == {
        name: zones[0][name] for name in ("carbon", "price", "cores", "uplink")
    }
    assert {zone for zone, *_ in net.says} == {"barn"}
    for name in ("net.toml", "net.json", "net.npz"):
        nets.write(net, tmp_path / name)
        assert nets.read(tmp_path / name).says == net.says
    zones[1] |= {"price": "prices.csv", "carbon": "command: cat carbon"}  # what changes: found by the site itself
    net = net_from_table({"zones": zones, "wan": {"kind": "gateways"}}, "farm")
    for name in ("net.toml", "net.json", "net.npz"):
        nets.write(net, tmp_path / name)
        assert ("cloud", "price", "prices.csv") in nets.read(tmp_path / name).says
        assert ("cloud", "carbon", "command: cat carbon") in nets.read(tmp_path / name).says
    for key, value, told in (
        ("price", "cheap", "price must be a number; got 'cheap'"),
        ("carbon", -1, "carbon must be a number of 0 or more; got -1"),
        ("cores", "2", "cores must be a number; got '2'"),
        ("price", math.inf, "price must be a number of 0 or more; got inf"),
        ("uplink", 5, "uplink is text such as 'rate=500 kB/s'; got 5"),
    ):
        with pytest.raises(NetError, match=f"zone 'cloud': {told}"):
            net_from_table({"zones": [zones[1] | {key: value}]}, "farm")
