#pragma once

#include <ATen/record_function.h>

#include <exception>
#include <optional>
#include <unordered_set>
#include <vector>

#include "python/bindings.h"

namespace exportguard::python {

/// Notes what operators of torch write into although it is older than the watch, and copies it before they do.
///
/// Told by `at::RecordFunction` (torch 2.11 to 2.13), which sees every call of the dispatcher in this thread: those
/// that functions of torch are made of, those under autograd, under functorch, and of the TorchScript interpreter. A
/// schema says what is written. What an operator returned, other than in the memory of its arguments, is no older than
/// the watch.
class [[gnu::visibility("hidden")]] WriteWatch {
 public:
  /// A tensor that was written, in the form that it had before, and what its storage held.
  struct Written {
    at::Tensor tensor;
    c10::Storage content;  ///< none of a tensor without data
    std::int64_t offset;
    std::vector<std::int64_t> sizes, strides;
    std::optional<std::uint32_t> version;  ///< none of a tensor that was made in inference mode
  };

  void begin();  ///< Watches this thread, until `end`; watches may lie within each other.

  /// @throws whatever hindered a copy: the operator has written all the same
  void end();

  /// What was written since it was last asked, by storage the first time.
  std::vector<Written> taken();

  int around() const { return around_; }  ///< how many kernels it began within
  void before_call(const at::RecordFunction& call);
  void after_call(const at::RecordFunction& call, const at::ObserverContext* given);

 private:
  void keep(const at::Tensor& tensor);

  std::unordered_set<const c10::StorageImpl*> made_, kept_;
  std::vector<Written> written_;
  std::exception_ptr failure_;
  int around_ = 0;
};

void bind_write_watch(py::module_& m);  ///< `WriteWatch`

}  // namespace exportguard::python
