"""The pages of the dashboard, one a file: each has `add(api)`, which registers it."""

__all__: list[str] = []
