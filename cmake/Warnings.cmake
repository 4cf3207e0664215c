add_library(exportguard_warnings INTERFACE)
target_compile_options(exportguard_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # false positives in std::variant with GCC 12
if(EXPORTGUARD_WERROR)
  target_compile_options(exportguard_warnings INTERFACE -Werror)
endif()
