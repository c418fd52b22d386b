from hypothesis import settings

# The first call of a kernel compiles it, which no deadline could allow for.
settings.register_profile("compiled", deadline=None, derandomize=True)
settings.load_profile("compiled")
