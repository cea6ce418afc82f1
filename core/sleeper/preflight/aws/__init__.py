"""What the preflight asks AWS."""
