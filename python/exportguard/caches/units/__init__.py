"""One module for each class that is an input: a module with `PATCHES` is found, not listed."""
