"""Programs of ECS tasks and EMR jobs."""
