# The agent's files and what serves them.
hutch_unit_test(format SOURCES ${CMAKE_SOURCE_DIR}/guest/format.c)
target_compile_definitions(test_format PRIVATE SOURCE_DIR="${CMAKE_SOURCE_DIR}")
