"""Reads at one version that several processes execute: plans, parts, change feeds."""
