"""Patches of transformers, one module for each module of transformers that they change."""
