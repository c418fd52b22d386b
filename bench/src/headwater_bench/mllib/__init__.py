"""TRAIN with Spark's MLlib."""
