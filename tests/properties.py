"""How thorough tests are: in CI, and with `make test THOROUGH=1`, as many examples of a property as it says; else a quarter.

They are the same every time, so what fails in CI alone fails at home too once it is asked for there.
"""

import os

from hypothesis import HealthCheck, settings

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "ci"
_SHARE = 1 if THOROUGH else 4
#: fewer would leave out what is rare among those that are tried first, which are small
_FEWEST = 8


def load_profile():
    """Have all properties tried alike, those that do not say how often too."""
    name = "ci" if THOROUGH else "home"
    calm = [HealthCheck.too_slow]
    settings.register_profile(
        name, deadline=None, max_examples=share_of(50), suppress_health_check=calm, derandomize=True
    )
    settings.load_profile(name)


def share_of(number):
    """Return so many in CI, and at home a share of them: of seeds, say."""
    return -(-number // _SHARE)


def examples(number, **more):
    """Try so many examples of a property in CI, and at home a share of them."""
    return settings(max_examples=max(share_of(number), min(number, _FEWEST)), **more)
