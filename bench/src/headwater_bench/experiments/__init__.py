"""Named experiments: each checks its own answer, repeats interleaved, and reports ratios measured side by side.

Every module has `run(...) -> dict`, the JSON document that `headwater bench NAME --json` prints.
"""
