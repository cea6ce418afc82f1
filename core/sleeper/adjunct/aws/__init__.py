"""Streams of AWS as inputs of adjunct stores."""
