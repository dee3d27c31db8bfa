"""Examples of dshift; README.md shows them."""
