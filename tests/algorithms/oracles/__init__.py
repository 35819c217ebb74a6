"""What the algorithms compute, written in NumPy from their papers: independent of compiler and runtime."""
