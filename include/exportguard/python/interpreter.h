#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace exportguard::python {

struct InterpreterOptions {
  std::string python;  ///< the interpreter whose environment is used, "venv/bin/python"; empty: the default one
  std::vector<std::string> paths;  ///< put before sys.path
  /// What happens to an interpreter that was started here when the object ends. An interpreter that was running before
  /// is never ended.
  enum class AtEnd { kFinalize, kKeepRunning } at_end = AtEnd::kFinalize;
};

/// The Python interpreter of this process, started by the first such object unless there is one already, with the
/// `exportguard` package imported, so that its patches are declared.
///
/// The constructing thread holds the GIL afterwards, if the interpreter was started here. torch cannot be loaded a
/// second time: a process starts at most one interpreter. Guards and tensors should end before it; a guard that ends
/// after it does nothing.
class Interpreter {
 public:
  /// @throws Error if the interpreter cannot start or the package cannot be imported, with Python's text, or if one has
  /// ended in this process.
  explicit Interpreter(const InterpreterOptions& options = {});
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  /// Must run on the thread that constructed it.
  ~Interpreter() noexcept;

  /// Runs statements in `__main__`. May be called from any thread.
  /// @throws Error with Python's traceback if they raise.
  void execute(std::string_view code);

  /// Whether an interpreter is running in this process.
  static bool is_running() noexcept;

 private:
  bool finalize_ = false;
};

}  // namespace exportguard::python
