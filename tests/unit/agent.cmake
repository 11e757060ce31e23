# The agent's pure parts, and what can be tried without a connection.
set(guest ${CMAKE_SOURCE_DIR}/guest)
hutch_unit_test(agent_ring SOURCES ${guest}/ring.c)
hutch_unit_test(agent_user SOURCES ${guest}/user.c ${guest}/lines.c LIBS hutch_protocol)
hutch_unit_test(agent_env SOURCES ${guest}/env.c LIBS hutch_protocol)
hutch_unit_test(agent_loop SOURCES ${guest}/loop.c ${guest}/log.c)
hutch_unit_test(agent_parse SOURCES ${guest}/lines.c ${guest}/procwalk.c LIBS hutch_protocol)
hutch_unit_test(agent_spawn SOURCES ${guest}/spawn.c ${guest}/log.c)
# All of it but main.
set(agent_all ${HUTCH_AGENT_SOURCES})
list(FILTER agent_all EXCLUDE REGEX "/main\\.c$")
hutch_unit_test(agent_conn SOURCES ${agent_all} LIBS hutch_protocol)
