"""The parts that stacks are put together from, each with the house's defaults."""
