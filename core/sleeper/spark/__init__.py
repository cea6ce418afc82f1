"""Sleeper tables in Spark: the only package that imports PySpark."""
