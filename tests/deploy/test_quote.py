"""What a site says of itself: a figure that is fixed, of a file by hour, or of a command."""

import sys
import time

import pytest

from headwater.deploy.site.quote import Quote, held_at
from headwater.errors import RunError
from waiting import PATIENCE_S

HOUR = 3600.0


def test_a_number_always_holds():
    quote = Quote("--price", "0.25")
    assert quote.at(0.0) == quote.at(1e9) == 0.25
    assert quote.why == ""


def test_a_file_has_values_by_hour_of_the_day_and_is_read_again(tmp_path):
    file = tmp_path / "prices.csv"
    file.write_text("# hour, price\n8,0.3\n\n20,0.1\n")
    quote = Quote("--price", str(file))
    assert [quote.at(hour * HOUR) for hour in (7.9, 8, 19.9, 20, 24 + 8)] == [0.1, 0.3, 0.3, 0.1, 0.3]
    file.write_text("0,0.5\n")
    assert quote.at(9 * HOUR) == 0.5
    file.write_text("0,cheap\n")
    assert quote.at(9 * HOUR) == 0.5  # what was known holds
    assert "expected a number of 0 or more; got 'cheap'" in quote.why
    file.write_text("0,0.7\n")
    assert (quote.at(9 * HOUR), quote.why) == (0.7, "")


def test_a_file_may_have_dates():
    rows = [(1_000_000.0, 1.0), (2_000_000.0, 2.0)]
    assert [held_at(rows, at_s) for at_s in (0.0, 1_000_000.0, 5_000_000.0)] == [None, 1.0, 2.0]


def asked(quote, met):
    until_s = time.monotonic() + PATIENCE_S
    while not met(quote.at(time.time())):
        assert time.monotonic() < until_s, quote.why
        time.sleep(0.01)


def test_a_command_is_asked_again_and_what_it_last_said_holds_while_it_fails(tmp_path):
    script = tmp_path / "price.py"
    script.write_text("print(0.25)")
    quote = Quote("--price", f"command: {sys.executable} {script}", again_s=0.01)
    asked(quote, lambda value: value == 0.25)
    script.write_text("import sys; sys.exit('no market today')")
    asked(quote, lambda value: "no market today" in quote.why)
    assert quote.at(time.time()) == 0.25
    script.write_text("print(0.5)")
    asked(quote, lambda value: value == 0.5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-1", "--price is a number of 0 or more, a file of hours and values, or 'command: …'; got '-1'"),
        ("prices.csv", "got 'prices.csv', and there is no such file"),
        ("command: ", "--price names no command"),
    ],
)
def test_what_is_no_figure_is_told(text, why):
    with pytest.raises(RunError, match=why):
        Quote("--price", text)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("", "has no row; write one 'hour,value'"),
        ("25,1\n", "expected an hour from 0 to 23, or a date such as 2026-03-01T14:00; got '25'"),
        ("\u00b2,1\n", "expected an hour from 0 to 23, or a date such as 2026-03-01T14:00; got '\u00b2'"),
        ("1,1\n2026-03-01T14:00,1\n", "mixes hours of the day with dates"),
        ("1;1\n", "row 1 of .* should be 'hour,value'; got '1;1'"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_before_the_site_starts(tmp_path, rows, why):
    (tmp_path / "prices.csv").write_text(rows)
    with pytest.raises(RunError, match=why):
        Quote("--price", str(tmp_path / "prices.csv"))
