"""What AWS bills of an instance, and its prices."""
