"""What `bench moves` has: a flow at its `sites`, what happens to them (`faults`), what its sinks have then (`verdict`)."""
