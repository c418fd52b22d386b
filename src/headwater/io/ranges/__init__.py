"""Sources cut into ranges that can be read side by side: `lines` by bytes, `rows` by rows, `numbers` by the clock."""
