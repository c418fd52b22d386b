"""Both ends of `bench bridge`: the `records`, who is `receiving` them in a process of its own, the `link` between."""
