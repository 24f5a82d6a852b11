"""Parts of tools/bench-isolation."""
