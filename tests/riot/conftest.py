import sys
from pathlib import Path

from hypothesis import settings

# The first call of a kernel compiles it, which no deadline could allow for.
settings.register_profile("compiled", deadline=None, derandomize=True)
settings.load_profile("compiled")

# The slow, plain twins of all tasks, which the tests of this folder compare with.
sys.path.append(str(Path(__file__).parents[1] / "riot"))
