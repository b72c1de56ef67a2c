/* Which of the bugs in plants.cmake is at work; 0: none. Included before every planted source. */
#ifndef TESTS_SIM_PLANTED_H
#define TESTS_SIM_PLANTED_H

extern int planted_bug;

#endif
