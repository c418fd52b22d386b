"""Runs a flow on Spark; the only folder that imports pyspark."""
