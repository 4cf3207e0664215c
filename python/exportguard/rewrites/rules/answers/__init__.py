"""Rules of what is asked of an object for its type."""
