"""What the tests of Spark share; the session itself is in the conftest of all tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
