# Finds torch in the environment of Python_EXECUTABLE by path, without importing it and without find_package(Torch),
# which warns on a CPU wheel and fails on a CUDA wheel where the toolkit is missing or newer.
#
# Defines: exportguard::torch (libtorch_cpu, c10), exportguard::torch_python, exportguard::fmt (torch's own fmt alone),
#          EXPORTGUARD_TORCH_ROOT, EXPORTGUARD_TORCH_VERSION, EXPORTGUARD_TORCH_CUDA
execute_process(
  COMMAND ${Python_EXECUTABLE} -c [[
import importlib.util, os, sys
spec = importlib.util.find_spec("torch")
if spec is None:
    sys.exit("torch is not installed for " + sys.executable + "; install torch 2.11 to 2.13 first")
root = os.path.dirname(spec.origin)
values = {}
exec(open(os.path.join(root, "version.py")).read(), values)
print(";".join([root, str(values["__version__"]), str(values.get("cuda"))]))
]]
  OUTPUT_VARIABLE _torch
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
list(GET _torch 0 EXPORTGUARD_TORCH_ROOT)
list(GET _torch 1 EXPORTGUARD_TORCH_VERSION)
list(GET _torch 2 EXPORTGUARD_TORCH_CUDA)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" EXPORTGUARD_TORCH_MINOR "${EXPORTGUARD_TORCH_VERSION}")
if(EXPORTGUARD_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "exportguard needs torch 2.11 or newer, found ${EXPORTGUARD_TORCH_VERSION}")
endif()
message(STATUS "torch ${EXPORTGUARD_TORCH_VERSION} (CUDA ${EXPORTGUARD_TORCH_CUDA}) at ${EXPORTGUARD_TORCH_ROOT}")

function(_exportguard_imported name file)
  set(path ${EXPORTGUARD_TORCH_ROOT}/lib/${file})
  if(NOT EXISTS ${path})
    message(FATAL_ERROR "${path} is missing: the torch wheel is damaged or of an unknown layout")
  endif()
  add_library(exportguard::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(exportguard::${name} PROPERTIES IMPORTED_LOCATION ${path})
endfunction()
_exportguard_imported(c10 libc10.so)
_exportguard_imported(torch_cpu libtorch_cpu.so)
_exportguard_imported(torch_python_library libtorch_python.so)

add_library(exportguard::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(exportguard::torch SYSTEM INTERFACE ${EXPORTGUARD_TORCH_ROOT}/include
                           ${EXPORTGUARD_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_libraries(exportguard::torch INTERFACE exportguard::torch_cpu exportguard::c10)
target_link_options(exportguard::torch INTERFACE "LINKER:-rpath-link,${EXPORTGUARD_TORCH_ROOT}/lib")

add_library(exportguard::torch_python INTERFACE IMPORTED GLOBAL)
target_link_libraries(exportguard::torch_python INTERFACE exportguard::torch_python_library exportguard::torch)

# torch's include folder shadows protobuf, so sources that see onnx.pb.h must not see it: link its fmt alone.
set(_fmt_include ${CMAKE_BINARY_DIR}/third_party/fmt)
file(MAKE_DIRECTORY ${_fmt_include})
file(CREATE_LINK ${EXPORTGUARD_TORCH_ROOT}/include/fmt ${_fmt_include}/fmt SYMBOLIC)
# Its functions are compiled once: header-only, half of the time that a source takes goes into compiling them anew.
# The templates are those that fmt declares extern (fmt 11 and 12, of torch 2.11 to 2.13).
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/third_party/fmt.cpp CONTENT [[
#include <fmt/format-inl.h>
FMT_BEGIN_NAMESPACE
namespace detail {
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl<char>(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
]] @ONLY)
add_library(exportguard_fmt STATIC ${CMAKE_BINARY_DIR}/third_party/fmt.cpp)
add_library(exportguard::fmt ALIAS exportguard_fmt)
target_include_directories(exportguard_fmt SYSTEM PUBLIC ${_fmt_include})
