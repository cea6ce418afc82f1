"""Export queues on AWS."""
