"""Where steps stand in the drawing."""

from headwater.web.layout import HEIGHT, WIDTH, drawing_of


def graph(columns, streams):
    steps = [{"name": name, "column": number} for number, names in enumerate(columns) for name in names]
    return {"steps": steps, "streams": [{"from": a, "to": b} for a, b in streams]}


def test_no_two_of_a_hundred_steps_overlap_and_all_are_inside():
    columns = [[f"{c}-{r}" for r in range(10)] for c in range(10)]
    drawn = drawing_of(graph(columns, [(f"{c}-{r}", f"{c + 1}-{(r * 7) % 10}") for c in range(9) for r in range(10)]))
    places = list(drawn.at.values())
    assert len(places) == 100
    assert all(0 <= x <= drawn.width - WIDTH and 0 <= y <= drawn.height - HEIGHT for x, y in places)
    for i, (x, y) in enumerate(places):
        assert all(abs(x - a) >= WIDTH or abs(y - b) >= HEIGHT for a, b in places[i + 1 :])


def test_streams_that_need_not_cross_do_not():
    drawn = drawing_of(graph([["a", "b"], ["of b", "of a"]], [("a", "of a"), ("b", "of b")]))
    assert (drawn.at["a"][1] < drawn.at["b"][1]) == (drawn.at["of a"][1] < drawn.at["of b"][1])


def test_an_empty_flow_has_a_drawing_too():
    assert drawing_of(graph([], [])).at == {}
