"""Runs of adapters on Spark: databases over JDBC."""
