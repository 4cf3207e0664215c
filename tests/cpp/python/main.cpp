#include <Python.h>
#include <gtest/gtest.h>

#include "exportguard/python/interpreter.h"

/// One interpreter for the whole process. It is never ended, since torch cannot be loaded twice; between tests no
/// thread holds the GIL, so every test takes it as a caller would.
class InterpreterEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    using exportguard::python::Interpreter;
    using exportguard::python::InterpreterOptions;
    const Interpreter interpreter({.python = EXPORTGUARD_TEST_PYTHON,
                                   .paths = {EXPORTGUARD_TEST_PACKAGE},
                                   .at_end = InterpreterOptions::AtEnd::kKeepRunning});
    main_thread_ = PyEval_SaveThread();
  }

  void TearDown() override { PyEval_RestoreThread(main_thread_); }

 private:
  PyThreadState* main_thread_ = nullptr;
};

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new InterpreterEnvironment);
  return RUN_ALL_TESTS();
}
