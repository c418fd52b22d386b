"""Matchers: `pattern`, `sequence` and `nfa` run a chain compiled, `interpreter` runs any chain record by record, by
`conditions` between records, with attempts that wait in `waiting`.
"""
