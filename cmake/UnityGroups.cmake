# exportguard_unity_groups(<target>)
#   With CMAKE_UNITY_BUILD, which compiles several sources as one, the sources of a target that are compiled together: those
#   whose anonymous namespaces do not meet (unity_groups.py). A build from nothing takes less time; after a change more
#   is compiled anew.
function(exportguard_unity_groups target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/(src|tests)/.*\\.cpp$") # what is generated lies elsewhere in a wheel
  execute_process(COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/unity_groups.py ${sources}
                  OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
  string(REPLACE "\n" ";" lines "${lines}")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([0-9]+) (.*)$" _ ${line})
    set_source_files_properties(${CMAKE_MATCH_2} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${CMAKE_MATCH_1})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()
