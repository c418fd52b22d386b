"""RIoTBench: its tasks as steps, its dataflows as flows, its data and models.

`data` reads or generates the four streams, `models` holds trees and regressions, `train_tree` and
`train_regression` make them.
"""
