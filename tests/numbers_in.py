"""The numbers that a file or a table holds, in the order in which they are there."""

import csv
import json
import sqlite3


def json_numbers(path):
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


def csv_numbers(path):
    with path.open() as file:
        return [int(row["n"]) for row in csv.DictReader(file)]


def sqlite_numbers(path):
    connection = sqlite3.connect(path)
    found = [n for (n,) in connection.execute("SELECT n FROM t")]
    connection.close()
    return found
