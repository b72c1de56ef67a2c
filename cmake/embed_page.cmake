# Writes the files of web/ into a C source: arrays of bytes, with content types and ETags.
#
#   cmake -DWEB=FOLDER -DOUT=FILE.c -P cmake/embed_page.cmake
#
# It also makes recording.html, the page in one file: index.html with the styles and all modules
# inside, in the order in which they import each other. A browser does not load modules from
# file://, so a recording that is mailed needs them inline; hashes in its Content-Security-Policy
# allow just these. The output depends on the files alone.
cmake_minimum_required(VERSION 3.25)

set(TYPE_html "text/html; charset=utf-8")
set(TYPE_css "text/css; charset=utf-8")
set(TYPE_js "text/javascript; charset=utf-8")
set(TYPE_svg "image/svg+xml")
set(DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")

# Three bytes, as six hexadecimal digits, become four digits of base64.
function(base64_of_sha256 text out)
  string(SHA256 hex "${text}")
  set(hex "${hex}00") # 32 bytes are 10 groups of three, and two bytes with padding
  set(result "")
  foreach(group RANGE 10)
    math(EXPR at "${group} * 6")
    string(SUBSTRING ${hex} ${at} 6 six)
    foreach(shift 18 12 6 0)
      math(EXPR digit "(0x${six} >> ${shift}) & 63")
      string(SUBSTRING "${DIGITS}" ${digit} 1 letter)
      string(APPEND result "${letter}")
    endforeach()
  endforeach()
  string(LENGTH "${result}" length)
  math(EXPR length "${length} - 1")
  string(SUBSTRING "${result}" 0 ${length} result)
  set(${out} "${result}=" PARENT_SCOPE)
endfunction()

# All modules as one script, each after those that it imports.
function(bundle out)
  file(GLOB waiting RELATIVE ${WEB} ${WEB}/*.js)
  list(SORT waiting)
  set(placed "")
  set(script "")
  while(waiting)
    set(progress NO)
    foreach(name ${waiting})
      file(READ ${WEB}/${name} text)
      set(text "\n${text}")
      string(REGEX MATCHALL "from '\\./[a-z_]+\\.js'" imports "${text}")
      set(is_ready YES)
      foreach(import ${imports})
        string(REGEX REPLACE "from '\\./([a-z_]+\\.js)'" "\\1" import "${import}")
        if(NOT import IN_LIST placed)
          set(is_ready NO)
        endif()
      endforeach()
      if(is_ready)
        string(REGEX REPLACE "\nimport [^\;]*\;" "" text "${text}")
        string(REGEX REPLACE "\nexport " "\n" text "${text}")
        string(APPEND script "${text}")
        list(APPEND placed ${name})
        list(REMOVE_ITEM waiting ${name})
        set(progress YES)
      endif()
    endforeach()
    if(NOT progress)
      message(FATAL_ERROR "web/: modules import each other, or one that is missing: ${waiting}")
    endif()
  endwhile()
  set(${out} "${script}" PARENT_SCOPE)
endfunction()

function(make_recording out)
  file(READ ${WEB}/index.html page)
  file(READ ${WEB}/style.css style)
  bundle(script)
  if(script MATCHES "</script" OR style MATCHES "</style")
    message(FATAL_ERROR "web/: a module or the style contains its own closing tag")
  endif()
  base64_of_sha256("${script}" script_hash)
  base64_of_sha256("${style}" style_hash)
  string(FIND "${page}" "<!-- files -->" begin)
  string(FIND "${page}" "<!-- end of files -->" end)
  if(begin LESS 0 OR end LESS begin)
    message(FATAL_ERROR "web/index.html: its links are not between the comments \"files\" and "
      "\"end of files\"")
  endif()
  string(SUBSTRING "${page}" 0 ${begin} before)
  string(SUBSTRING "${page}" ${end} -1 after)
  set(csp "default-src 'none'; script-src 'sha256-${script_hash}'; ")
  string(APPEND csp "style-src 'sha256-${style_hash}'; base-uri 'none'; form-action 'none'; ")
  string(APPEND csp "require-trusted-types-for 'script'; trusted-types 'none'")
  set(${out} "${before}<meta http-equiv=\"Content-Security-Policy\" content=\"${csp}\">
<style>${style}</style>
<script type=\"application/json\" id=\"recording\">null</script>
<script type=\"module\">${script}</script>
${after}" PARENT_SCOPE)
endfunction()

set(arrays "")
set(rows "")
set(count 0)
function(embed name path)
  file(READ ${path} hex HEX)
  string(LENGTH "${hex}" length)
  math(EXPR length "${length} / 2")
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REPEAT "." 80 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  get_filename_component(suffix ${name} LAST_EXT)
  string(SUBSTRING ${suffix} 1 -1 suffix)
  if(NOT DEFINED TYPE_${suffix})
    message(FATAL_ERROR "web/${name}: no content type is known for .${suffix}")
  endif()
  string(APPEND arrays "static const unsigned char file_${count}[] = {\n${bytes}\n};\n")
  string(APPEND rows "    {\"${name}\", \"${TYPE_${suffix}}\", \"\\\"${hash}\\\"\",\n")
  string(APPEND rows "     {(const char *)file_${count}, ${length}}},\n")
  math(EXPR count "${count} + 1")
  set(arrays "${arrays}" PARENT_SCOPE)
  set(rows "${rows}" PARENT_SCOPE)
  set(count ${count} PARENT_SCOPE)
endfunction()

file(GLOB names RELATIVE ${WEB} ${WEB}/*.html ${WEB}/*.css ${WEB}/*.js ${WEB}/*.svg)
list(SORT names)
foreach(name ${names})
  embed(${name} ${WEB}/${name})
endforeach()
make_recording(recording)
file(WRITE ${OUT}.recording.html "${recording}")
embed(recording.html ${OUT}.recording.html)

file(WRITE ${OUT} "/* Made by cmake/embed_page.cmake from the files of web/. */
#include \"page/page_int.h\"

${arrays}
const struct page_file page_files[] = {
${rows}};
const uint32_t page_file_count = ${count};
")
