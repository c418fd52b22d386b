"""JSON objects as columns without an object for each: `columns` reads them, by the kernel of `scan`; `texts` writes.

Whatever is unusual goes through `headwater.io.records`, record by record, which also says what is wrong with it.
"""
