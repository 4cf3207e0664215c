"""The subcommands, one module for each; they are found, not listed."""
