"""A decision tree in arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel


@kernel
def classify(
    features: NDArray[np.float64],
    attribute: NDArray[np.int64],
    threshold: NDArray[np.float64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Walk each record from node 0 to a leaf and put out the leaf's class.

    `features[a, i]` is attribute a of record i. At node n a value up to `threshold[n]` goes to node `low[n]`,
    a larger one (or a NaN) to `high[n]`. A leaf has attribute -1, and its class in `low`.
    """
    for i in range(len(out)):
        node = 0
        while attribute[node] >= 0:
            node = low[node] if features[attribute[node], i] <= threshold[node] else high[node]
        out[i] = low[node]
