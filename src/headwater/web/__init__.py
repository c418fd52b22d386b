"""What other programs see of a run over HTTP; binds to loopback unless told otherwise."""

__all__: list[str] = []
