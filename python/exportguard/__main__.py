"""`python -m exportguard`."""

from .command_line import script

if __name__ == "__main__":
    script()
