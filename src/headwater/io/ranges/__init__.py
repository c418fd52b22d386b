"""Sources cut into ranges: `lines` by bytes, `rows` by rows, `numbers` by the clock, `files` by the files of a table."""
