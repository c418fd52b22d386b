"""Delta tables, by the first versions of Delta's protocol, whatever version of Spark runs.

Delta's own connector is built for one version at a time, and there is none for ours.

`log` is what a table consists of and how files are added to it, `summary` what readers find the log's beginning in, `ranges`
reads a table and what is added later.
"""

FOLDER = "_delta_log"  #: of a table, in which its log is
