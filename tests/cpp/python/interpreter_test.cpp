#include "exportguard/python/interpreter.h"

#include <Python.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "exportguard/common/errors.h"
#include "python/python_test.h"

namespace exportguard::python {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Interpreter, JoinsTheOneThatRunsAndLeavesItRunning) {
  EXPECT_TRUE(Interpreter::is_running());
  {
    Interpreter second;
  }
  EXPECT_TRUE(Interpreter::is_running());
}

void start_after_the_end() {
  PyGILState_Ensure();
  Py_FinalizeEx();
  try {
    const Interpreter again;
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(0);
  }
  std::_Exit(1);
}

TEST(InterpreterDeathTest, RefusesToStartASecondTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_after_the_end(), testing::ExitedWithCode(0), "torch cannot be loaded a second time");
}

TEST(Interpreter, RunsStatementsInMain) {
  Interpreter interpreter;
  interpreter.execute("answer = 6 * 7");
  interpreter.execute("assert answer == 42");
}

TEST(Interpreter, RunsStatementsOnAnyThread) {
  Interpreter interpreter;
  std::thread([&] { interpreter.execute("from_thread = True"); }).join();
  interpreter.execute("assert from_thread");
}

TEST(Interpreter, TurnsPythonExceptionsIntoErrorsWithTheTraceback) {
  Interpreter interpreter;
  EXPECT_THAT([&] { interpreter.execute("1 / 0"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("ZeroDivisionError"), HasSubstr("<execute>"))));
}

TEST(Interpreter, PutsItsPathsBeforeTheOthers) {
  Interpreter interpreter({.paths = {"/first", "/second"}});
  interpreter.execute("import sys; assert sys.path[:2] == ['/first', '/second']; del sys.path[:2]");
}

TEST(Interpreter, UsesTheEnvironmentOfTheInterpreterItWasGiven) {
  Interpreter interpreter;
  interpreter.execute("import sys; assert sys.executable == '" EXPORTGUARD_TEST_PYTHON "', sys.executable");
}

}  // namespace
}  // namespace exportguard::python
