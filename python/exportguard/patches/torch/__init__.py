"""Patches of torch, one module for each fix."""
