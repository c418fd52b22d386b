"""TRAIN on Spark: with the engine's own trainers, and with MLlib."""
