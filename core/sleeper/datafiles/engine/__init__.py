"""DataFusion sessions and predicates."""
