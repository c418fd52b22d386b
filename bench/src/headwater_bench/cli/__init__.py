"""Commands that the benchmark adds to `headwater`."""
