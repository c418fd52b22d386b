"""What the tests of all runners share: running a flow on each, and comparing what came out."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent.parent / "spark")]
