"""Reads at one version that several processes execute: parts, holds, change feeds."""
