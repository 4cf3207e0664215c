# Every target from here on; torch's own libraries and onnx's sources are without.
if(EXPORTGUARD_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=thread)
elseif(EXPORTGUARD_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1 -O0)
  add_link_options(-fsanitize=address,undefined)
endif()
