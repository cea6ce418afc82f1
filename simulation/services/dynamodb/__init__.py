"""Simulates DynamoDB in memory: tables with indexes, expressions, transactions, capacity."""
