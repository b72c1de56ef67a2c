# Copies sources of the product with the bugs of plants.cmake put in, each behind its number.
#
#   cmake -DSRC=src -DOUT=folder "-DFILES=kv/cache.c;..." [-DPLANTS=file] -P plant.cmake
#
# plant(NAME FILE OLD NEW) replaces the text OLD, which occurs exactly once in FILE, by NEW; the
# word PLANT in it is true when this bug is chosen. also(FILE OLD NEW) is one more edit of the
# same bug. A text that is not there any more is an error: the bug must be planted anew.
cmake_minimum_required(VERSION 3.25)
set(count 0)
set(names "")

foreach(file ${FILES})
  string(MAKE_C_IDENTIFIER ${file} id)
  file(READ ${SRC}/${file} text_${id})
endforeach()

function(edit file old new)
  string(MAKE_C_IDENTIFIER ${file} id)
  set(text "${text_${id}}")
  string(FIND "${text}" "${old}" first)
  string(FIND "${text}" "${old}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "planted bug ${count} (${name}): not exactly once in ${file}:\n${old}")
  endif()
  string(REPLACE "PLANT" "(planted_bug == ${count})" new "${new}")
  string(REPLACE "${old}" "${new}" text "${text}")
  set(text_${id} "${text}" PARENT_SCOPE)
endfunction()

macro(plant what file old new)
  math(EXPR count "${count} + 1")
  set(name "${what}")
  string(APPEND names "    \"${what}\",\n")
  edit(${file} "${old}" "${new}")
endmacro()

macro(also file old new)
  edit(${file} "${old}" "${new}")
endmacro()

if(NOT PLANTS)
  set(PLANTS ${CMAKE_CURRENT_LIST_DIR}/plants.cmake)
endif()
include(${PLANTS})

foreach(file ${FILES})
  string(MAKE_C_IDENTIFIER ${file} id)
  file(WRITE ${OUT}/${id} "${text_${id}}")
endforeach()
file(WRITE ${OUT}/plant_names.h "static const char *const plant_names[] = {\n${names}};\n")
