"""Ready-made steps for streams of sensors: scans by key, and a filter that knows many names in little memory.

Each is a `Scan`, so it runs after `key_by`, on every runner, and its state can be saved, moved and split by key:

>>> from headwater import Flow, io, steps
>>> flow = Flow("smooth")
>>> read = flow.read("read", io.Items([{"pump": "a", "bar": 2.0}, {"pump": "a", "bar": 2.4}]))
>>> smooth = read.key_by("pump").scan("kalman", steps.Kalman("bar"), out={"pump": str, "bar": "float32"})
"""

from headwater.steps.average import BlockAverage
from headwater.steps.bloom import BloomFilter
from headwater.steps.distinct import DistinctCount
from headwater.steps.interpolate import Interpolate
from headwater.steps.kalman import Kalman
from headwater.steps.moment import SecondMoment
from headwater.steps.regression import SlidingRegression

__all__ = ["BlockAverage", "BloomFilter", "DistinctCount", "Interpolate", "Kalman", "SecondMoment", "SlidingRegression"]
