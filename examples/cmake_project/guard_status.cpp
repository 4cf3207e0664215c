// Opens a guard in an embedded interpreter and prints what it installed and what it skipped.
#include <exportguard/exportguard.h>

#include <cstdio>
#include <exception>

int main() try {
  exportguard::python::Interpreter python({.python = VENV_PYTHON});
  exportguard::ExportPatches guard;
  std::puts(guard.report().text().c_str());
  guard.close();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
