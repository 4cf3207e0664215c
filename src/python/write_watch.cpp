#include "python/write_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/stl.h>
#include <torch/csrc/Storage.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "operators/schemas.h"

namespace exportguard::python {
namespace {

/// What the schema of an operator says.
struct Effects {
  std::vector<std::size_t> written;  ///< arguments, by their places
  bool returns_aliases = false;      ///< what it returns may lie in memory that it was given
  bool is_composite = true;          ///< it may be made of other operators, which are told themselves
};

/// The storages of the arguments of a call, which the callback behind it is not told.
struct Given : at::ObserverContext {
  std::vector<const c10::StorageImpl*> storages;
  const Effects* effects = nullptr;
  bool is_kernel = false;
};

/// The watches of this thread, the innermost last; one pair of callbacks serves them all.
thread_local std::vector<WriteWatch*> watches;
thread_local at::CallbackHandle callback = 0;
/// Schemas lie where they are while their operators are registered, and each has its own name.
thread_local std::unordered_map<const char*, Effects> known_effects;
/// How many kernels are running: what they call is theirs, and so is its memory. A watch that begins within one, as
/// Python's code for an operator may, is told of calls there.
thread_local int kernels = 0;

constexpr c10::DispatchKeySet functorch_wrappers({c10::DispatchKey::FuncTorchBatched,
                                                  c10::DispatchKey::FuncTorchGradWrapper,
                                                  c10::DispatchKey::FuncTorchVmapMode});

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList() || value.isList()) {
    for (const c10::IValue& item : value.toListRef()) for_each_tensor(item, visit);
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) for_each_tensor(item, visit);
  }
}

const Effects& effects_of(const at::RecordFunction& call) {
  const auto [known, is_new] = known_effects.try_emplace(call.name());
  if (!is_new) return known->second;
  const std::optional<c10::FunctionSchema> schema = call.operator_schema();
  if (!schema) return known->second;  // a function of the TorchScript interpreter: its operators are told themselves
  for (std::size_t place = 0; place < schema->arguments().size(); ++place) {
    if (operators::is_written(schema->arguments()[place])) known->second.written.push_back(place);
  }
  known->second.returns_aliases =
      std::ranges::any_of(schema->returns(), [](const c10::Argument& value) { return value.alias_info() != nullptr; });
  const std::string& name = schema->name();
  const std::string overload = schema->overload_name().empty() ? "default" : schema->overload_name();
  const std::size_t colons = name.find("::");
  const auto handle = operators::find_operator(name.substr(0, colons), name.substr(colons + 2) + "." + overload);
  known->second.is_composite = !handle || operators::is_composed(*handle);
  return known->second;
}

/// Whether what is called does the work itself, in memory of its own but for what its schema says: no operator that is
/// made of others, and none that functorch applies to other tensors.
bool is_kernel(const Effects& effects, c10::ArrayRef<const c10::IValue> arguments) {
  if (effects.is_composite) return false;
  if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) return false;
  bool is_wrapped = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      is_wrapped = is_wrapped || (tensor.defined() && tensor.key_set().has_any(functorch_wrappers));
    });
  }
  return !is_wrapped;
}

bool has_storage(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.has_storage();
}

/// Whether there is data in it. Fake tensors and wrappers have none.
bool has_data(const at::Tensor& tensor) {
  return !tensor.is_meta() && !tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python);
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

/// A copy that no mode and no transformation of torch's sees.
c10::Storage copied(const c10::Storage& storage) {
  c10::Allocator* allocator = storage.allocator();
  if (allocator == nullptr) allocator = c10::GetAllocator(storage.device_type());  // memory of another library
  const std::size_t size = storage.nbytes();
  return {c10::Storage::use_byte_size_t(), size, allocator->clone(storage.data(), size), allocator, true};
}

std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& call) {
  if (watches.empty() || watches.back()->around() != kernels) return nullptr;
  auto given = std::make_unique<Given>();
  given->effects = &effects_of(call);
  given->is_kernel = is_kernel(*given->effects, call.inputs());
  if (!given->effects->returns_aliases) {
    for (const c10::IValue& argument : call.inputs()) {
      for_each_tensor(argument, [&](const at::Tensor& tensor) {
        if (has_storage(tensor)) given->storages.push_back(storage_of(tensor));
      });
    }
  }
  if (!given->effects->written.empty()) {
    for (WriteWatch* watch : watches) {
      if (watch->around() == kernels) watch->before_call(call);
    }
  }
  kernels += given->is_kernel ? 1 : 0;
  return given;
}

void after(const at::RecordFunction& call, at::ObserverContext* context) {
  const auto* given = static_cast<const Given*>(context);
  if (given == nullptr) return;
  kernels -= given->is_kernel ? 1 : 0;
  for (WriteWatch* watch : watches) {
    if (watch->around() == kernels) watch->after_call(call, given);
  }
}

py::object to_python(const WriteWatch::Written& written) {
  const py::object content =
      written.content ? py::reinterpret_steal<py::object>(THPStorage_Wrap(written.content)) : py::none();
  return py::make_tuple(written.tensor, content, written.offset, written.sizes, written.strides, written.version);
}

}  // namespace

void WriteWatch::begin() {
  if (watches.empty()) {
    callback = at::addThreadLocalCallback(at::RecordFunctionCallback(&before, &after)
                                              .needsInputs(true)
                                              .needsOutputs(true)
                                              .scopes({at::RecordScope::FUNCTION}));
  }
  around_ = kernels;
  watches.push_back(this);
}

void WriteWatch::end() {
  std::erase(watches, this);
  if (watches.empty()) {
    at::removeCallback(callback);
    known_effects.clear();
  }
  made_.clear();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

std::vector<WriteWatch::Written> WriteWatch::taken() { return std::exchange(written_, {}); }

void WriteWatch::before_call(const at::RecordFunction& call) {
  const c10::ArrayRef<const c10::IValue> arguments = call.inputs();
  for (const std::size_t place : effects_of(call).written) {
    if (place < arguments.size()) {
      for_each_tensor(arguments[place], [this](const at::Tensor& tensor) { keep(tensor); });
    }
  }
}

void WriteWatch::after_call(const at::RecordFunction& call, const at::ObserverContext* context) {
  const auto* given = static_cast<const Given*>(context);
  if (given->effects->returns_aliases) return;
  for (const c10::IValue& result : call.outputs()) {
    for_each_tensor(result, [&](const at::Tensor& tensor) {
      if (!has_storage(tensor)) return;
      const c10::StorageImpl* storage = storage_of(tensor);
      // Functions that do nothing return their argument, as dropout does where nothing is trained.
      if (std::ranges::find(given->storages, storage) == given->storages.end()) made_.insert(storage);
    });
  }
}

void WriteWatch::keep(const at::Tensor& tensor) {
  if (!has_storage(tensor) || made_.contains(storage_of(tensor)) || !kept_.insert(storage_of(tensor)).second) return;
  if (!has_data(tensor)) {
    written_.push_back({tensor, {}, 0, {}, {}, {}});
    return;
  }
  try {
    const auto version = tensor.is_inference() ? std::nullopt : std::optional(tensor._version());
    written_.push_back({tensor, copied(tensor.storage()), tensor.storage_offset(), tensor.sizes().vec(),
                        tensor.strides().vec(), version});
  } catch (...) {  // torch writes what a callback throws to the log, and goes on
    if (!failure_) failure_ = std::current_exception();
  }
}

void bind_write_watch(py::module_& m) {
  py::class_<WriteWatch>(m, "WriteWatch", "What operators write into although it is older than a `with` block of this.")
      .def(py::init<>())
      .def(
          "__enter__",
          [](WriteWatch& watch) -> WriteWatch& {
            watch.begin();
            return watch;
          },
          py::return_value_policy::reference)
      .def("__exit__", [](WriteWatch& watch, const py::args&) { watch.end(); })
      .def(
          "taken",
          [](WriteWatch& watch) {
            py::list found;
            for (const WriteWatch::Written& written : watch.taken()) found.append(to_python(written));
            return found;
          },
          "The tensors written since it was last asked, each storage once: (tensor, copy of its storage, offset, "
          "sizes, "
          "strides, version or None), as they were before; None for the copy of what has no data.");
}

}  // namespace exportguard::python
