"""Figure 12 of Storm-RTS on one machine: flows that are promised a rate move between a cloud and three edges.

flows     the flows, whose messages fall due by the clock, and what each of them takes of a site
world     sites, coordinators and SCAN as processes
account   what it cost, what it could have cost, and which windows were kept
picture   throughput of each flow, where it ran, and cost, over time
"""
