"""Which step runs where: a problem of frozen arrays, and one strategy per file."""
