"""Hypothesis drives a real instance against a plain model."""
