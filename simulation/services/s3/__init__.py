"""Simulates S3 in memory, for boto3's clients, the object store and the query engine.

S3 is strongly consistent, so no read or listing is late. The object store and the engine are native
code. The functions of `obstore` are replaced by Python functions for simulated stores, and objects
are also files in a folder, which the engine reads instead of S3: its reads have no faults. A server
in this process would give them faults in threads that the world does not schedule.
"""
