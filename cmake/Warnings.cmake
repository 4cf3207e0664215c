add_library(exportguard_warnings INTERFACE)
target_compile_options(exportguard_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # false positives in std::variant with GCC 12
if(CMAKE_UNITY_BUILD) # a private class with members of an anonymous namespace: every source is an included file here
  target_compile_options(exportguard_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
if(EXPORTGUARD_WERROR)
  target_compile_options(exportguard_warnings INTERFACE -Werror)
endif()
