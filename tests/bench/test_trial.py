"""What many trials say together: who is driven on, and what rate counts as sustained."""

from headwater_bench.experiments.trial import Trial, median, of, sustained_hz, sweep


def trial(rate, p99=5.0, out=None, config="threads", repeat=0):
    return Trial(
        subject="etl",
        config=config,
        repeat=repeat,
        offered_hz=rate,
        out_hz=rate if out is None else out,
        p50_ms=1.0,
        p99_ms=p99,
        emit_p99_ms=1.0,
        cv=0.1,
        backpressure=0.0,
        steps={},
    )


def test_the_sustained_rate_is_the_highest_that_most_repeats_kept():
    kept = [trial(100), trial(200, 90, 199), trial(200, 300, 190), trial(200, 50, 198)]
    assert sustained_hz([*kept, trial(300, 20, 200), trial(400, 500, 400)]) == 200
    assert sustained_hz([]) == 0


def test_a_rate_is_not_sustained_where_a_lower_one_is_not():
    assert sustained_hz([trial(100), trial(200, 500, 200), trial(300)]) == 100


def test_configurations_take_turns_and_who_fails_twice_is_driven_no_further():
    asked = []

    def measure(config, rate, repeat):
        asked.append((config, rate, repeat))
        return trial(rate, p99=500 if config == "slow" and rate > 1 else 5, config=config, repeat=repeat)

    done = list(sweep([3, 1, 2, 4, 5], ["slow", "fast"], 2, measure, for_all=5))
    assert asked[:4] == [("slow", 1, 0), ("fast", 1, 0), ("slow", 1, 1), ("fast", 1, 1)]
    assert {t.offered_hz for t in of(done, "slow")} == {1, 2, 3, 5}
    assert sustained_hz(of(done, "slow")) == 1
    assert sustained_hz(of(done, "fast")) == 5


def test_a_median_leaves_out_what_is_missing():
    assert median([None, 3.0, 1.0, 2.0]) == 2.0
    assert median([None]) is None
