"""AELS+RP+LA: AELS+RP over a short list of devices near the step's neighbours (Veith et al., 4.3)."""

from __future__ import annotations

import numpy as np

from headwater.net.arrays import Flags, Floats
from headwater.place.aels_rp import Regions, choose
from headwater.place.board import Board
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem


def solve(problem: Problem, budget: Budget | None = None) -> Placement:
    """Place steps in deployment order on listed devices; on all of them where no listed one fits."""
    regions = Regions(problem)

    def rule(board: Board, step: int) -> int | None:
        fits = board.feasible(step)
        row = choose(board, step, regions, fits & near(board, step, regions, fits))
        return row if row is not None else choose(board, step, regions, fits)

    return grow(problem, "aels-rp-la", budget or Budget(), rule)


def near(board: Board, step: int, regions: Regions, fits: Flags) -> Flags:
    """The rows worth a look: hosts upstream and their nearest fellows, the next site and cloud, the sinks."""
    listed = np.zeros(board.rows, bool)
    edge = ~board.problem.net.is_cloud[board.kind]
    for _, row, _ in board.upstream(step):
        home = board.zone == board.zone[row]
        listed[row] = True
        if edge[row]:
            _list_least(board, listed, board.lan_s, fits & home & edge & (np.arange(board.rows) != row))
        far = board.wan_row(int(board.zone[row]))[board.zone] + board.lan_s
        _list_least(board, listed, far, fits & edge & ~home)
        _list_least(board, listed, far, fits & ~edge)
    for sink in sorted(regions.feeds[step]):
        if board.problem.pinned[sink] >= 0:
            _list_sink(board, listed, int(board.problem.pinned[sink]), fits)
    return listed


def _list_sink(board: Board, listed: Flags, host: int, fits: Flags) -> None:
    """List a sink's host, or else the fitting row nearest to it."""
    at_host = board.device == host
    if (at_host & fits).any():
        listed |= at_host
        return
    zone = int(board.problem.net.zone_of(host))
    _list_least(board, listed, board.wan_row(zone)[board.zone] + board.lan_s, fits)


def _list_least(board: Board, listed: Flags, cost: Floats, among: Flags) -> None:
    """List the cheapest row, among equals that of the lowest device number, as everywhere."""
    row = board.best(cost, among)
    if row is not None:
        listed[row] = True
