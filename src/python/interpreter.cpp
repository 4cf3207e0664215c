#include "exportguard/python/interpreter.h"

#include <fmt/format.h>

#include <atomic>

#include "exportguard/common/errors.h"
#include "python/bindings.h"
#include "python/owned_object.h"

namespace exportguard::python {
namespace {

void require(const PyStatus& status, const std::string& python) {
  if (PyStatus_Exception(status))
    throw Error(
        fmt::format("cannot start Python '{}': {}", python, status.err_msg ? status.err_msg : "unknown reason"));
}

/// Clears the configuration on every way out.
struct Config : PyConfig {
  Config() { PyConfig_InitPythonConfig(this); }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;
  ~Config() { PyConfig_Clear(this); }
};

void start(const std::string& python) {
  Config config;
  config.parse_argv = 0;
  config.install_signal_handlers = 0;  // the program's own handlers stay
  // Python finds a virtual environment by the pyvenv.cfg beside its program, so the program's name it must be.
  if (!python.empty()) require(PyConfig_SetBytesString(&config, &config.program_name, python.c_str()), python);
  require(Py_InitializeFromConfig(&config), python);
}

/// Runs `code` under the GIL; Python's exceptions become `Error`.
template <class Code>
void with_python(const Code& code) {
  const py::gil_scoped_acquire gil;
  try {
    code();
  } catch (const py::error_already_set& error) {
    throw Error(fmt::format("Python raised {}", error.what()));
  }
}

void prepend_paths(const std::vector<std::string>& paths) {
  py::list sys_path = py::module_::import("sys").attr("path");
  for (auto it = paths.rbegin(); it != paths.rend(); ++it) sys_path.insert(0, *it);
}

}  // namespace

bool Interpreter::is_running() noexcept { return interpreter_alive(); }

Interpreter::Interpreter(const InterpreterOptions& options) {
  static std::atomic<bool> was_one_running = false;
  const bool started = !Py_IsInitialized();
  if (started && was_one_running) {
    throw Error(
        "cannot start Python: it ran in this process before and has ended, and torch cannot be loaded a second time; "
        "let one Interpreter live as long as the process, or end with AtEnd::kKeepRunning");
  }
  if (started) start(options.python);
  was_one_running = true;
  with_python([&] {
    prepend_paths(options.paths);
    py::module_::import("exportguard.patches").attr("declare_all")();
  });
  finalize_ = started && options.at_end == InterpreterOptions::AtEnd::kFinalize;
}

Interpreter::~Interpreter() noexcept {
  if (finalize_ && interpreter_alive()) Py_FinalizeEx();
}

void Interpreter::execute(std::string_view code) {
  if (!interpreter_alive()) throw Error("cannot run Python code: the interpreter has ended");
  with_python([&] {
    const py::dict globals = py::module_::import("__main__").attr("__dict__");
    const py::object compiled = py::module_::import("builtins").attr("compile")(std::string(code), "<execute>", "exec");
    py::module_::import("builtins").attr("exec")(compiled, globals);
  });
}

}  // namespace exportguard::python
