"""Addresses and whole numbers as they are typed."""

import pytest

from headwater.cli.address import address_of
from headwater.cli.parameters import parse_lanes
from headwater.cli.question import whole
from headwater.cli.run import parse_take
from headwater.errors import PlacementError, RunError


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("site:8471", ("site", 8471)),
        (":8471", ("127.0.0.1", 8471)),
        ("[::1]:8471", ("::1", 8471)),
        ("site:65535", ("site", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(given, read):
    assert address_of("--join", given, "192.0.2.1:8471") == read


@pytest.mark.parametrize("given", ["site", "site:", "site:x", "site:-1", "site:65536", "site:\u00b2", "site:8\u2460"])
def test_what_has_no_port_is_refused_be_it_a_digit_of_another_kind(given):
    with pytest.raises(RunError, match=r"--join takes an address and a port, such as 192\.0\.2\.1:8471; got"):
        address_of("--join", given, "192.0.2.1:8471")


def test_a_number_that_is_raised_or_in_a_circle_is_no_whole_number():
    for read in (parse_take, parse_lanes):
        with pytest.raises(RunError, match=r"a number of .* above 0; got '\u00b2'"):
            read("\u00b2")
    with pytest.raises(PlacementError, match="--top needs a whole number; got '\u2460'"):
        whole("--top", "\u2460")
