# Builds onnx's C++ library (protos, checker, schemas, shape inference) from the sources that the `onnx` wheel carries,
# in a private C++ namespace and proto package, so that it lives beside any other onnx in one process.
#
# Defines: exportguard_onnx (static, hidden visibility)
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('onnx').origin))"
  OUTPUT_VARIABLE EXPORTGUARD_ONNX_ROOT
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
get_filename_component(_onnx_parent ${EXPORTGUARD_ONNX_ROOT} DIRECTORY)
message(STATUS "onnx sources at ${EXPORTGUARD_ONNX_ROOT}")

set(Protobuf_USE_STATIC_LIBS OFF) # Debian's static library is not position independent
find_package(Protobuf 3.21 REQUIRED)
find_package(Threads REQUIRED)

set(_namespace exportguard_onnx)
# The wheel's folder holds all of site-packages' headers: show the compiler the onnx folder alone.
set(_sources ${CMAKE_BINARY_DIR}/third_party/onnx)
file(MAKE_DIRECTORY ${_sources})
file(CREATE_LINK ${EXPORTGUARD_ONNX_ROOT} ${_sources}/onnx SYMBOLIC)

set(_generated ${CMAKE_BINARY_DIR}/third_party/onnx_generated)
file(MAKE_DIRECTORY ${_generated}/onnx)
set(_protos)
set(_proto_sources)
foreach(_name onnx onnx-operators onnx-data)
  set(_stem ${_generated}/onnx/${_name}_${_namespace})
  if(NOT _name STREQUAL "onnx-data")
    set(_stem ${_stem}-ml)
  endif()
  add_custom_command(
    OUTPUT ${_stem}.proto
    COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1 ${Python_EXECUTABLE} ${EXPORTGUARD_ONNX_ROOT}/gen_proto.py
            -p ${_namespace} -m -o ${_generated}/onnx ${_name}
    DEPENDS ${EXPORTGUARD_ONNX_ROOT}/${_name}.in.proto
    VERBATIM)
  list(APPEND _protos ${_stem}.proto)
  list(APPEND _proto_sources ${_stem}.pb.cc)
endforeach()
add_custom_command(
  OUTPUT ${_proto_sources}
  COMMAND protobuf::protoc -I ${_generated} --cpp_out ${_generated} ${_protos}
  DEPENDS ${_protos}
  VERBATIM)
add_custom_target(exportguard_onnx_generated DEPENDS ${_proto_sources})

file(GLOB_RECURSE _onnx_sources ${EXPORTGUARD_ONNX_ROOT}/defs/*.cc ${EXPORTGUARD_ONNX_ROOT}/common/*.cc
     ${EXPORTGUARD_ONNX_ROOT}/shape_inference/*.cc ${EXPORTGUARD_ONNX_ROOT}/inliner/*.cc
     ${EXPORTGUARD_ONNX_ROOT}/version_converter/*.cc) # the schemas use the inliner, which uses the converter
add_library(exportguard_onnx STATIC EXCLUDE_FROM_ALL ${EXPORTGUARD_ONNX_ROOT}/checker.cc ${_onnx_sources}
                                                      ${_proto_sources})
add_dependencies(exportguard_onnx exportguard_onnx_generated)
set_target_properties(exportguard_onnx PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                                  EXPORT_COMPILE_COMMANDS OFF UNITY_BUILD_MODE GROUP)
# Reading the headers is most of their time, and files of one name do not meet: those without a group stay alone.
foreach(_name defs old utils)
  set(_together ${_onnx_sources})
  list(FILTER _together INCLUDE REGEX "/defs/[a-z_]+/${_name}\\.cc$")
  set_source_files_properties(${_together} PROPERTIES UNITY_GROUP ${_name})
endforeach()
target_include_directories(exportguard_onnx SYSTEM PUBLIC ${_generated} ${_sources})
target_compile_definitions(exportguard_onnx PUBLIC ONNX_ML=1 ONNX_NAMESPACE=${_namespace} __STDC_FORMAT_MACROS)
target_compile_options(exportguard_onnx PRIVATE -w -O1)
target_link_libraries(exportguard_onnx PUBLIC protobuf::libprotobuf Threads::Threads)
