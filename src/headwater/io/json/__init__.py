"""JSON objects as columns without an object for each: `scan` reads the usual forms of them, `texts` writes them.

Whatever is unusual goes through `headwater.io.records`, record by record, which also says what is wrong with it.
"""
