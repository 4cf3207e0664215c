"""Functions read, edited and compiled from their source: the one engine that patches and rewrites stand on."""
