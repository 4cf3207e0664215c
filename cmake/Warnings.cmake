add_library(exportguard_warnings INTERFACE)
target_compile_options(exportguard_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # false positives in std::variant with GCC 12
if(EXPORTGUARD_WERROR)
  target_compile_options(exportguard_warnings INTERFACE -Werror)
endif()
if(EXPORTGUARD_SANITIZE)
  # The whole project is built with them; torch's own libraries are not.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
endif()
