"""The workload: random operations of clients on an instance."""
