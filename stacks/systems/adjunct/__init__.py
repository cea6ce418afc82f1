"""Adjunct stores on AWS."""
