import sys
from pathlib import Path

# The slow, plain twins of all tasks, which the tests of this folder compare with.
sys.path.append(str(Path(__file__).parents[1] / "riot"))
