"""Compiled inner loops, one topic per file; imported when they are needed, since Numba takes half a second."""
