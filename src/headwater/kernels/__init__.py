"""Compiled inner loops over arrays, one topic per file.

Importing a module of this folder imports Numba, which takes half a second; so nothing that a plain flow needs to start
imports one at module level. Operators import the kernels they use when they are built.
"""
