"""Both ends of `bench bridge`: the `records`, and who is `receiving` them in a process of its own."""
