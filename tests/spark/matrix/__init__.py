"""What works on which PySpark: features, run on an installed version, and the record of their runs.

A feature is a use of Spark whose rows are compared with a model. The record of a version has the
outcome of each feature: a digest of its rows, or the error that names the version it needs.
`make spark-matrix` runs all versions, each in an environment of its own with the package's wheel;
the ordinary tests run the installed one.
"""
