"""The model: what the workload submitted, and the rows that a table must have."""
