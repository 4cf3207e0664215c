#include "python/python_changes.h"

#include <cstdlib>
#include <memory>
#include <thread>

#include "exportguard/guard/patch_stack.h"
#include "python/owned_object.h"
#include "python/python_test.h"

namespace exportguard::python {
namespace {

using guard::PatchStack;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PythonChanges : public PythonTest {
 protected:
  PythonChanges() {
    exec(R"(
class Base:
    @staticmethod
    def s(): return 's'
    @classmethod
    def c(cls): return cls.__name__
    @property
    def p(self): return 'p'
    def m(self): return 'm'
class Derived(Base): pass
class Slotted:
    __slots__ = ('value',)
slotted = Slotted()
slotted.value = 1
mapping = {'a': 1}
)");
  }

  static void set(PatchStack& stack, const char* owner, const char* name, const char* value) {
    stack.apply(set_attribute(eval(owner), py::str(name), eval(value)));
  }
};

TEST_F(PythonChanges, RestoreTheIdenticalDescriptors) {
  const py::dict before = eval("dict(vars(Base))");
  {
    PatchStack stack;
    for (const char* name : {"s", "c", "p", "m"}) set(stack, "Base", name, "7");
    EXPECT_EQ(text("(Base.s, Base.c, Base().p, Base().m)"), "(7, 7, 7, 7)");
  }
  for (const char* name : {"s", "c", "p", "m"})
    EXPECT_TRUE(py::object(before[name]).is(eval("vars(Base)")[py::str(name)])) << name;
}

TEST_F(PythonChanges, TakeAnInheritedAttributeAwayAgain) {
  {
    PatchStack stack;
    set(stack, "Derived", "m", "lambda self: 'patched'");
    EXPECT_EQ(text("(Derived().m(), Base().m())"), "('patched', 'm')");
  }
  EXPECT_EQ(text("'m' in vars(Derived)"), "False");
}

TEST_F(PythonChanges, RestoreTheOriginalThroughTwoPatchesOfOneAttribute) {
  const py::object before = eval("vars(Base)['m']");
  {
    PatchStack stack;
    set(stack, "Base", "m", "lambda self: 1");
    set(stack, "Base", "m", "lambda self: 2");
  }
  EXPECT_TRUE(before.is(eval("vars(Base)['m']")));
}

TEST_F(PythonChanges, SetBackAnAttributeThatIsKeptInASlot) {
  {
    PatchStack stack;
    set(stack, "slotted", "value", "2");
    EXPECT_EQ(text("slotted.value"), "2");
  }
  EXPECT_EQ(text("slotted.value"), "1");
}

TEST_F(PythonChanges, RefuseAnAttributeThatIsNotThere) {
  PatchStack stack;
  EXPECT_THROW(set(stack, "Base", "nothing", "1"), py::error_already_set);
  EXPECT_EQ(stack.size(), 0);
  EXPECT_EQ(text("hasattr(Base, 'nothing')"), "False");
}

TEST_F(PythonChanges, RefuseATypeThatCannotBeChanged) {
  PatchStack stack;
  EXPECT_THROW(set(stack, "int", "bit_length", "1"), py::error_already_set);
  EXPECT_EQ(PyErr_Occurred(), nullptr);
}

TEST_F(PythonChanges, PutItemsOfMappingsBack) {
  {
    PatchStack stack;
    stack.apply(set_item(eval("mapping"), py::str("a"), py::int_(2)));
    stack.apply(set_item(eval("mapping"), py::str("b"), py::int_(3)));
    stack.apply(delete_item(eval("mapping"), py::str("a")));
    EXPECT_EQ(text("mapping"), "{'b': 3}");
  }
  EXPECT_EQ(text("mapping"), "{'a': 1}");
}

TEST_F(PythonChanges, KeepAnExceptionThatIsInFlight) {
  {
    PatchStack stack;
    set(stack, "Base", "m", "1");
    PyErr_SetString(PyExc_KeyError, "in flight");
  }
  EXPECT_TRUE(PyErr_ExceptionMatches(PyExc_KeyError));
  PyErr_Clear();
}

TEST_F(PythonChanges, SayWhichAttributeCouldNotBeRestored) {
  exec(R"(
class Meta(type):
    locked = False
    def __setattr__(cls, name, value):
        if Meta.locked: raise RuntimeError('locked')
        type.__setattr__(cls, name, value)
class Locked(metaclass=Meta):
    f = 1
)");
  PatchStack stack;
  set(stack, "Locked", "f", "2");
  exec("Meta.locked = True");
  const std::vector<std::string> failures = stack.unwind_to(0);
  exec("Meta.locked = False");
  ASSERT_THAT(failures, SizeIs(1));
  EXPECT_THAT(failures[0], ::testing::StartsWith("__main__.Locked.f: RuntimeError: locked"));
  EXPECT_EQ(PyErr_Occurred(), nullptr);
}

TEST_F(PythonChanges, AreUndoneOnAThreadThatDoesNotHoldTheGil) {
  auto stack = std::make_unique<PatchStack>();
  set(*stack, "Base", "m", "lambda self: 'patched'");
  {
    const py::gil_scoped_release released;
    std::thread([&] { stack.reset(); }).join();
  }
  EXPECT_EQ(text("Base().m()"), "m");
}

TEST_F(PythonChanges, DropTheirObjects) {
  exec("import sys\nheld = object()\nbefore = sys.getrefcount(held)");
  {
    PatchStack stack;
    set(stack, "Base", "m", "held");
    stack.apply(set_item(eval("mapping"), py::str("x"), eval("held")));
  }
  EXPECT_EQ(text("sys.getrefcount(held) - before"), "0");
}

TEST_F(PythonChanges, CallWhatTheyWereGiven) {
  exec("log = []");
  {
    PatchStack stack;
    stack.apply(call(eval("lambda: log.append('+')"), eval("lambda: log.append('-')"), "a log"));
  }
  EXPECT_EQ(text("log"), "['+', '-']");
}

/// In a child process, since the interpreter of the tests must live on.
TEST(PythonChangesDeathTest, DoNothingOnceTheInterpreterHasEnded) {
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_EXIT(
      {
        PyGILState_Ensure();
        auto* const stack = new PatchStack;
        const py::object owner = py::module_::import("types").attr("SimpleNamespace")(py::arg("f") = 1);
        stack->apply(set_attribute(owner, py::str("f"), py::int_(2)));
        Py_FinalizeEx();
        delete stack;
        std::_Exit(interpreter_alive() ? 1 : 42);
      },
      ::testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace exportguard::python
