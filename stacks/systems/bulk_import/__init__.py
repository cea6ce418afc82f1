"""Bulk import: what all platforms share, and a stack for each platform."""
