"""What `tools/test-docs` is made of."""
