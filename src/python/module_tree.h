#pragma once

#include "python/bindings.h"

namespace exportguard::python {

/// The walk through a `torch.nn.Module` and all in it, which torch writes as a generator within a generator for each
/// level: a model that is called again and again is gone through before and behind each call.
void bind_module_tree(py::module_& m);  ///< `named_modules` and `named_tensors`

}  // namespace exportguard::python
