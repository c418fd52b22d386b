from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.column import Text
from headwater.errors import FlowError
from headwater.io.senml.columns import SenmlParser
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.datasets import DATASETS, dataset
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.sources import repeated
from headwater_bench.riot.taxi import TaxiStream
from properties import examples


def equal(one, other) -> bool:
    return one.tolist() == other.tolist()


@examples(20)
@given(st.sampled_from(sorted(DATASETS)), st.integers(0, 9000), st.integers(0, 200), st.integers(0, 50))
def test_a_record_is_the_same_in_whatever_piece_it_is_asked_for(name, start, skip, count):
    whole = stream(name, seed=3).columns(start, skip + count)
    part = stream(name, seed=3).columns(start + skip, count)
    assert all(equal(whole[column][skip : skip + count], part[column]) for column in whole)


@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=9), st.integers(0, 40), st.integers(0, 20))
def test_messages_are_repeated_in_turn_however_many_are_asked_for(texts, start, count):
    make = repeated(Text.of(texts), 1000).make
    run, strides = np.arange(start, start + count), np.arange(start, start + 3 * count, 3)
    for numbers in (run, strides):
        made = make(numbers)
        assert made["message"].tolist() == [texts[number % len(texts)] for number in numbers]
        assert made["msg"].tolist() == numbers.tolist()


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_another_seed_gives_other_records_and_the_same_seed_the_same(name):
    first = messages(stream(name, seed=1), 0, 20).tolist()
    assert messages(stream(name, seed=1), 0, 20).tolist() == first
    assert messages(stream(name, seed=2), 0, 20).tolist() != first


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_messages_say_what_the_columns_hold(name):
    made, kind = stream(name), dataset(name)
    columns, raw = made.columns(5000, 100), messages(made, 5000, 100)
    documents = [json.loads(line) for line in raw.tolist()]
    assert [[entry["n"] for entry in d["e"]] for d in documents] == [[f.name for f in kind.fields]] * 100
    fields = {f.name: "float" if f.name in kind.numbers else "text" for f in kind.fields}
    parsed = SenmlParser(fields).parse(raw)
    assert not parsed.status.any()
    assert parsed.time_ms.tolist() == columns["time_ms"].tolist()
    for column in kind.numbers:
        np.testing.assert_allclose(parsed.columns[column], columns[column], atol=1e-9)
    for column in (kind.id, *kind.meta):
        assert Text(*parsed.columns[column]).tolist() == columns[column].tolist()


def test_city_has_the_marginals_of_the_sample():
    columns = CityStream(seed=4).columns(0, 60_000)
    wanted = {
        "temperature": (20.62, 10.57, 23.9),
        "humidity": (49.24, 15.70, 48.0),
        "light": (390.4, 957.9, 0),
        "dust": (1122.8, 1051.9, 798.1),
        "airquality_raw": (28.45, 35.36, 24),
    }
    for name, (mean, sd, median) in wanted.items():
        assert columns[name].mean() == pytest.approx(mean, rel=0.06)
        assert columns[name].std() == pytest.approx(sd, rel=0.25)
        assert np.median(columns[name]) == pytest.approx(median, rel=0.06)
    assert (columns["light"] == 0).mean() == pytest.approx(0.526, abs=0.04)


def test_city_goes_out_of_range_as_often_as_the_sample():
    columns = CityStream(seed=4).columns(0, 60_000)
    wanted = {"temperature": 7.3, "humidity": 15.8, "light": 0.8, "dust": 9.9, "airquality_raw": 8.3}
    outside = np.zeros(60_000, bool)
    for name, percent in wanted.items():
        low, high = dataset("city").ranges[name]
        out = (columns[name] < low) | (columns[name] > high)
        assert 100 * out.mean() == pytest.approx(percent, abs=1.5)
        outside |= out
    assert 100 * outside.mean() == pytest.approx(36.1, abs=3)


def test_city_fields_are_correlated_as_in_the_sample():
    columns = CityStream(seed=4).columns(0, 60_000)
    found = np.corrcoef([columns[name] for name in dataset("city").numbers])
    wanted = {(0, 1): 0.31, (0, 3): -0.14, (0, 2): 0.12, (2, 1): -0.12, (2, 3): -0.11}
    for i in range(5):
        for j in range(i):
            assert found[i, j] == pytest.approx(wanted.get((i, j), wanted.get((j, i), 0.0)), abs=0.09)


def test_city_sites_differ_more_in_temperature_than_their_readings_do():
    made = CityStream(seed=4)
    columns = made.columns(0, 60_000)
    _, site = np.unique([text[:25] for text in columns["source"].tolist()], return_inverse=True)
    means = np.bincount(site, columns["temperature"]) / np.bincount(site)
    within = np.sqrt(np.mean((columns["temperature"] - means[site]) ** 2))
    assert means.std() == pytest.approx(11.2, rel=0.15)
    assert within == pytest.approx(2.4, rel=0.35)


def test_city_sends_so_many_messages_per_second_of_data_time():
    time_ms = CityStream(rate_hz=16.67).columns(0, 1000)["time_ms"]
    assert set(np.diff(time_ms)) == {0, 1000}
    assert len(np.unique(time_ms)) == 60


def test_taxi_trips_cost_what_the_benchmarks_model_says():
    columns = TaxiStream(seed=4).columns(0, 40_000)
    expected = 0.0021678 * columns["trip_time_in_secs"] + 2.3472466 * columns["trip_distance"] + 3.5741648
    assert np.median(columns["fare_amount"] - expected) == pytest.approx(0, abs=0.5)
    wanted = {"trip_time_in_secs": 5.3, "trip_distance": 22.8, "fare_amount": 14.7} | {
        "tip_amount": 53.9,
        "tolls_amount": 92.3,
    }
    for name, percent in wanted.items():
        low, high = dataset("taxi").ranges[name]
        assert 100 * ((columns[name] < low) | (columns[name] > high)).mean() == pytest.approx(percent, abs=4)
    parts = [columns[name] for name in ("fare_amount", "surcharge", "mta_tax", "tip_amount", "tolls_amount")]
    np.testing.assert_allclose(columns["total_amount"], sum(parts))


def test_fit_stays_in_its_ranges_and_samples_each_subject_at_50_hz():
    columns = stream("FIT").columns(0, 5000)
    for name, (low, high) in dataset("FIT").ranges.items():
        assert ((columns[name] >= low) & (columns[name] <= high)).all()
    assert columns["subjectId"].tolist()[:11] == [*(f"subject{i}" for i in range(1, 11)), "subject1"]
    assert np.diff(columns["time_ms"][::10]).tolist() == [20] * 499


def test_streams_that_cannot_be_are_refused():
    with pytest.raises(FlowError, match=r"there is no data set 'CITI'; expected one of .*; did you mean 'CITY'"):
        dataset("CITI")
    with pytest.raises(FlowError, match="0 sensors"):
        CityStream(sensors=0)
    with pytest.raises(FlowError, match="numbered from 0"):
        CityStream().columns(-1, 5)
