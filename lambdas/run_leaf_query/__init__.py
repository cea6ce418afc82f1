"""Function `run_leaf_query`."""
