"""Where sites stand on the page."""

import pytest

from headwater.web.map import HEIGHT, WIDTH, map_of, way_of


def named(names):
    return [{"name": name} for name in names]


def net(at, clouds=()):
    places = [{"name": name, "x": x, "y": y, "cloud": name in clouds} for name, (x, y) in at.items()]
    return {"name": "net", "sites": places}


def overlaps(drawn):
    places = list(drawn.at.values())
    return [
        (one, other)
        for number, one in enumerate(places)
        for other in places[number + 1 :]
        if abs(one[0] - other[0]) < WIDTH and abs(one[1] - other[1]) < HEIGHT
    ]


def inside(drawn):
    return all(0 <= x <= drawn.width - WIDTH and 0 <= y <= drawn.height - HEIGHT for x, y in drawn.at.values())


def test_sites_with_coordinates_stand_as_they_do_in_the_net_and_north_is_up():
    at = {"south west": (0.0, 0.0), "north": (40.0, 90.0), "east": (100.0, 10.0)}
    drawn = map_of(named(at), [], net(at))
    assert drawn.at["south west"][0] < drawn.at["north"][0] < drawn.at["east"][0]
    assert drawn.at["north"][1] < drawn.at["east"][1] < drawn.at["south west"][1]
    assert inside(drawn)
    assert not overlaps(drawn)


@pytest.mark.parametrize("spread", [0.0, 1.0, 1000.0])
def test_of_twenty_sites_none_covers_another_however_near_they_are(spread):
    at = {f"s{n}": (spread * (n * 7 % 20), spread * (n * 3 % 20)) for n in range(20)}
    drawn = map_of(named(at), [], net(at))
    assert not overlaps(drawn)
    assert inside(drawn)


def test_without_coordinates_streams_go_from_left_to_right_and_back_ways_do_not_matter():
    nowhere = dict.fromkeys(("cloud", "barn", "idle", "office"), (None, None))
    links = [("barn", "office"), ("office", "cloud"), ("cloud", "barn")]
    drawn = map_of(named(nowhere), links, net(nowhere, {"cloud"}))
    assert drawn.at["barn"][0] < drawn.at["office"][0]
    assert drawn.at["idle"][0] > max(drawn.at[name][0] for name in ("barn", "office", "cloud"))
    assert not overlaps(drawn)


def test_a_site_that_the_net_does_not_know_has_a_place_and_no_sites_have_a_drawing():
    at = {"barn": (0.0, 0.0)}
    assert set(map_of(named(["barn", "stranger"]), [], net(at)).at) == {"barn", "stranger"}
    assert map_of([], [], net({})).at == {}


def test_a_line_runs_from_box_to_box_and_two_ways_lie_side_by_side():
    at = {"a": (0.0, 0.0), "b": (10.0, 0.0)}
    drawn = map_of(named(at), [], net(at))
    there, back = way_of(drawn, "a", "b", 10.0), way_of(drawn, "b", "a", 10.0)
    (x0, _), (x1, _) = there.points[0], there.points[-1]
    assert drawn.at["a"][0] + WIDTH <= x0 < x1 <= drawn.at["b"][0]
    assert abs(there.label[1] - back.label[1]) == pytest.approx(20.0, abs=1.0)
    assert there.path.startswith(f"M{x0:.1f} ")


def test_a_line_passes_a_third_site_by_and_its_label_covers_none():
    at = {"a": (0.0, 0.0), "between": (5.0, 0.0), "b": (10.0, 0.0)}
    drawn = map_of(named(at), [], net(at))
    way = way_of(drawn, "a", "b")
    x, y = drawn.at["between"]
    assert not [p for p in way.points if x < p[0] < x + WIDTH and y < p[1] < y + HEIGHT]
    assert not (x - 40 < way.label[0] < x + WIDTH + 40 and y < way.label[1] < y + HEIGHT)
