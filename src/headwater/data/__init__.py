"""What all parts share of the data itself: columns and batches, their types, text, keys, and their one form as bytes.

`schema` names and types columns, `column` and `batch` hold them, `timestamps` and `iso_text` are moments, `text`, `decimal`
and `text_format` go between numbers and text, `hashing` and `keys` find records by key. `codec` saves plain values,
`frames` whole batches. `jit` compiles the loops over arrays: importing a module that does so takes half a second, so
nothing that a plain flow needs to start imports one at module level.
"""

__all__: list[str] = []
