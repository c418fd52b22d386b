"""Reading a source to its end."""


def rows_of(reader, limit):
    """Return all records of an open source, read so many at a time."""
    rows = []
    while (batch := reader.read(limit, 1)) is not None:
        assert len(batch) <= limit
        rows += batch.rows()
    reader.close()
    return rows
