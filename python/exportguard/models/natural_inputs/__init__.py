"""The inputs that a model of each task gets in use, one module for each family of tasks.

Each module has `make_inputs(model, sizes)`, which returns the keyword arguments of `model.forward`. The same sizes give
the same inputs.
"""
