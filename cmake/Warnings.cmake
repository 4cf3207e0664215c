add_library(exportguard_warnings INTERFACE)
target_compile_options(exportguard_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # false positives in std::variant with GCC 12
# A wrong index into a container ends the process where it is used, instead of writing into what lies behind.
target_compile_definitions(exportguard_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:_GLIBCXX_ASSERTIONS>)
if(CMAKE_UNITY_BUILD) # a private class with members of an anonymous namespace: every source is an included file here
  target_compile_options(exportguard_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
if(EXPORTGUARD_WERROR)
  target_compile_options(exportguard_warnings INTERFACE -Werror)
endif()
