"""SQL over tables: statements, the tables they see, and the keys they narrow reads to."""
