"""Function `plan_query`."""
