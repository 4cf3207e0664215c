"""Caches of transformers: how they are serialized, and how to build them from tensors."""
