"""Headwater's benchmark: RIoTBench, the papers' cases and all experiments; plugs into the command line.

`riot` has RIoTBench's tasks, flows, data and models; `cases` the nets and problems of the placement papers; `experiments`
what `headwater bench` runs; `mllib` trains on Spark; `cli` has the commands.
"""
