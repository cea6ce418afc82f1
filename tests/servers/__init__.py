"""Real servers for tests, from the package registries, each on a free port of loopback."""
