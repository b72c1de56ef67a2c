# libjitney: what include/jitney.h declares, as a shared and as a static library.
#
# Both show the names jitney_* and nothing else: the shared one by a version script, the static
# one by being a single object whose other symbols were made local. A program can therefore hold
# any other library, or a function called `buf_put`, beside it.

add_library(jitney_shared SHARED $<TARGET_OBJECTS:embed>)
target_link_libraries(jitney_shared PRIVATE embed)
target_link_options(jitney_shared PRIVATE
  -Wl,--as-needed -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/jitney.map)
set_target_properties(jitney_shared PROPERTIES
  OUTPUT_NAME jitney VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/jitney.map)

# The folders below embed; only the objects that embed needs are linked, so that a program needs
# no library of the others (libcurl and libzip, which only `jitney pull` uses).
set(archives "")
foreach(folder ${FOLDERS})
  if(folder STREQUAL "embed")
    break()
  endif()
  string(REPLACE "/" "_" name ${folder})
  if(TARGET ${name})
    list(APPEND archives ${name})
  endif()
endforeach()
list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE archive_files)
set(static ${CMAKE_BINARY_DIR}/libjitney.a)
add_custom_command(OUTPUT ${static}
  COMMAND ${CMAKE_LINKER} -r --whole-archive $<TARGET_FILE:embed> --no-whole-archive
    --start-group ${archive_files} --end-group -o jitney_whole.o
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=jitney_* jitney_whole.o
  COMMAND ${CMAKE_COMMAND} -E rm -f ${static}
  COMMAND ${CMAKE_AR} rcsD ${static} jitney_whole.o
  COMMAND ${CMAKE_COMMAND} -E rm -f jitney_whole.o
  DEPENDS embed ${archives} VERBATIM)
add_custom_target(jitney_static DEPENDS ${static})

add_custom_target(library ALL DEPENDS jitney_shared jitney_static)

# The example as a program of this tree, too, so that it is compiled with every warning on.
add_executable(example_chat examples/chat.c)
target_link_libraries(example_chat PRIVATE jitney_shared)

configure_file(cmake/jitney.pc.in jitney.pc @ONLY)
install(TARGETS jitney_shared LIBRARY DESTINATION lib)
install(FILES ${static} DESTINATION lib)
install(FILES include/jitney.h DESTINATION include)
install(FILES ${CMAKE_BINARY_DIR}/jitney.pc DESTINATION lib/pkgconfig)
